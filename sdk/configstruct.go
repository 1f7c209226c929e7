package sdk

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Definitions reads the config tags of a struct (given by pointer or value) into definitions, in the order of the fields.
// Embedded structs are walked into. It panics where a tag makes no sense, since that is a bug that any test finds.
//
// Tags: config (the key; fields without it are skipped), default, required ("true"), doc, group, importance (high, medium,
// low; default medium), width (none, short, medium, long), display, oneof (comma-separated), min, max, dependents
// (comma-separated). Types: string, bool, integers, floats, time.Duration, []string, Secret. A Duration whose key ends in
// ".ms" is written as a number of milliseconds, any other as Go writes durations ("1m30s").
func Definitions(structPtr any) []ConfigDef {
	t := reflect.TypeOf(structPtr)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		panic(fmt.Sprintf("sdk.Definitions: %T is no struct", structPtr))
	}
	var defs []ConfigDef
	inGroup := map[string]int{}
	walkFields(t, nil, func(f configField) {
		inGroup[f.def.Group]++
		f.def.OrderInGroup = inGroup[f.def.Group]
		defs = append(defs, f.def)
	})
	return defs
}

type configField struct {
	def    ConfigDef
	index  []int
	typ    reflect.Type
	millis bool
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	secretType   = reflect.TypeFor[Secret]()
	stringsType  = reflect.TypeFor[[]string]()
)

func walkFields(t reflect.Type, at []int, visit func(configField)) {
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(slices.Clone(at), i)
		key, ok := f.Tag.Lookup("config")
		if !ok {
			if f.Anonymous && f.Type.Kind() == reflect.Struct {
				walkFields(f.Type, index, visit)
			}
			continue
		}
		if !f.IsExported() {
			panic(fmt.Sprintf("sdk.Definitions: field %s of %s is not exported", f.Name, t))
		}
		visit(configField{def: definition(t, f, key), index: index, typ: f.Type, millis: strings.HasSuffix(key, ".ms")})
	}
}

func definition(t reflect.Type, f reflect.StructField, key string) ConfigDef {
	bad := func(what string) { panic(fmt.Sprintf("sdk.Definitions: %s.%s: %s", t, f.Name, what)) }
	d := ConfigDef{
		Name: key, Type: configType(f.Type, strings.HasSuffix(key, ".ms")),
		Required:   f.Tag.Get("required") == "true",
		Importance: strings.ToUpper(f.Tag.Get("importance")),
		Doc:        f.Tag.Get("doc"), Group: f.Tag.Get("group"),
		Width:       strings.ToUpper(f.Tag.Get("width")),
		DisplayName: f.Tag.Get("display"),
		Dependents:  splitList(f.Tag.Get("dependents")),
		OneOf:       splitList(f.Tag.Get("oneof")),
	}
	if key == "" || d.Type == "" {
		bad("no key or a type that configurations do not have")
	}
	d.Default, d.HasDefault = f.Tag.Lookup("default")
	if !d.Required && !d.HasDefault {
		// An optional key without a default has the zero value of its type as default, which Kafka shows as null.
		d.Default = ""
	}
	if d.Importance == "" {
		d.Importance = "MEDIUM"
	}
	if d.Width == "" {
		d.Width = "NONE"
	}
	if d.DisplayName == "" {
		d.DisplayName = key
	}
	for tag, to := range map[string]**int64{"min": &d.Min, "max": &d.Max} {
		if s, ok := f.Tag.Lookup(tag); ok {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				bad(tag + " is no integer")
			}
			*to = &n
		}
	}
	if d.HasDefault {
		if err := CheckValue(d, d.Default); err != nil {
			bad("default: " + err.Error())
		}
	}
	return d
}

func configType(t reflect.Type, millis bool) ConfigType {
	switch {
	case t == durationType && millis:
		return TypeLong
	case t == durationType:
		return TypeString
	case t == secretType:
		return TypePassword
	case t == stringsType:
		return TypeList
	}
	switch t.Kind() {
	case reflect.String:
		return TypeString
	case reflect.Bool:
		return TypeBoolean
	case reflect.Int8, reflect.Int16, reflect.Int32:
		return TypeInt
	case reflect.Int, reflect.Int64:
		return TypeLong
	case reflect.Float32, reflect.Float64:
		return TypeDouble
	}
	return ""
}

func splitList(s string) []string {
	var out []string
	for p := range strings.SplitSeq(s, ",") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// CheckValue checks one value against its definition, and words what is wrong as Kafka does.
func CheckValue(d ConfigDef, v string) error {
	invalid := func(why string) error {
		if d.Type == TypePassword {
			v = Secret(v).String()
		}
		return fmt.Errorf("Invalid value %s for configuration %s: %s", v, d.Name, why) //nolint:staticcheck // Kafka's wording
	}
	t := strings.TrimSpace(v)
	switch d.Type {
	case TypeInt, TypeLong:
		bits, name := 64, "LONG"
		if d.Type == TypeInt {
			bits, name = 32, "INT"
		}
		n, err := strconv.ParseInt(t, 10, bits)
		if err != nil {
			return invalid("Not a number of type " + name)
		}
		if d.Min != nil && n < *d.Min {
			return invalid(fmt.Sprintf("Value must be at least %d", *d.Min))
		}
		if d.Max != nil && n > *d.Max {
			return invalid(fmt.Sprintf("Value must be no more than %d", *d.Max))
		}
	case TypeDouble:
		n, err := strconv.ParseFloat(t, 64)
		if err != nil || math.IsNaN(n) {
			return invalid("Not a number of type DOUBLE")
		}
		if d.Min != nil && n < float64(*d.Min) {
			return invalid(fmt.Sprintf("Value must be at least %d", *d.Min))
		}
		if d.Max != nil && n > float64(*d.Max) {
			return invalid(fmt.Sprintf("Value must be no more than %d", *d.Max))
		}
	case TypeBoolean:
		if !strings.EqualFold(t, "true") && !strings.EqualFold(t, "false") {
			return invalid("Expected value to be either true or false")
		}
	case TypeList:
		for _, e := range splitList(v) {
			if len(d.OneOf) > 0 && !slices.Contains(d.OneOf, e) {
				return invalid("String must be one of: " + strings.Join(d.OneOf, ", "))
			}
		}
	case TypeString, TypeClass, TypePassword:
		if len(d.OneOf) > 0 && !slices.Contains(d.OneOf, t) {
			return invalid("String must be one of: " + strings.Join(d.OneOf, ", "))
		}
	}
	return nil
}

// CheckConfig checks cfg against definitions: required keys and the values of those given. Keys without definition are
// not its business.
func CheckConfig(defs []ConfigDef, cfg Config) []ConfigError {
	var errs []ConfigError
	for _, d := range defs {
		v, given := cfg[d.Name]
		if !given {
			if d.Required && !d.HasDefault {
				errs = append(errs, ConfigError{d.Name, fmt.Sprintf("Missing required configuration %q which has no default value.", d.Name)})
			}
			continue
		}
		if err := CheckValue(d, v); err != nil {
			errs = append(errs, ConfigError{d.Name, err.Error()})
		} else if d.Required && strings.TrimSpace(v) == "" {
			errs = append(errs, ConfigError{d.Name, fmt.Sprintf("Invalid value %s for configuration %s: String must be non-empty", v, d.Name)})
		}
	}
	return errs
}

// ValidateConnector checks cfg against the connector's definitions and, where they hold, by its own Validate.
func ValidateConnector(ctx context.Context, c Connector, cfg Config) []ConfigError {
	if errs := CheckConfig(c.Spec().Config, cfg); len(errs) > 0 {
		return errs
	}
	return c.Validate(ctx, cfg)
}

// Decode fills the struct that into points to from c, by its config tags (see Definitions). It returns one error per key
// that is missing or wrong; fields of other keys are filled all the same.
func (c Config) Decode(into any) []ConfigError {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("sdk.Config.Decode: %T is no pointer to a struct", into))
	}
	v = v.Elem()
	var errs []ConfigError
	walkFields(v.Type(), nil, func(f configField) {
		if bad := CheckConfig([]ConfigDef{f.def}, c); len(bad) > 0 {
			errs = append(errs, bad...)
			return
		}
		s, given := c[f.def.Name]
		if !given {
			s = f.def.Default
			if !f.def.HasDefault {
				return
			}
		}
		if err := setField(v.FieldByIndex(f.index), s, f.millis); err != nil {
			errs = append(errs, ConfigError{f.def.Name, fmt.Sprintf("Invalid value %s for configuration %s: %s", s, f.def.Name, err)})
		}
	})
	sort.SliceStable(errs, func(i, j int) bool { return errs[i].Key < errs[j].Key })
	return errs
}

func setField(v reflect.Value, s string, millis bool) error {
	if v.Type() != secretType && v.Kind() != reflect.String {
		s = strings.TrimSpace(s)
	}
	switch {
	case v.Type() == durationType:
		return setDuration(v, s, millis)
	case v.Type() == stringsType:
		v.Set(reflect.ValueOf(splitList(s)))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		v.SetBool(strings.EqualFold(s, "true"))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("out of range of %s", v.Type())
		}
		v.SetInt(n)
	case reflect.Float32, reflect.Float64:
		n, err := strconv.ParseFloat(s, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("out of range of %s", v.Type())
		}
		v.SetFloat(n)
	}
	return nil
}

func setDuration(v reflect.Value, s string, millis bool) error {
	if millis {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n > math.MaxInt64/int64(time.Millisecond) || n < math.MinInt64/int64(time.Millisecond) {
			return fmt.Errorf("out of range of milliseconds")
		}
		v.SetInt(n * int64(time.Millisecond))
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("not a duration such as 500ms or 1m30s")
	}
	v.SetInt(int64(d))
	return nil
}
