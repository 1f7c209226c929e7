module example.com/outside

go 1.26

require github.com/varvehq/varve v0.0.0
