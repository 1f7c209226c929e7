// Package file has a source and a sink connector over plain files of lines.
//
// The source reads one file, or the files of a folder, line by line, and follows them as they grow. Its partition is
// {"filename":path}, as Kafka's FileStreamSource has it, its offset {"position":bytes,"head":fingerprint}: the start of the
// next line, and a hash of the file's first bytes, by which a file that was replaced while the task was down is told from
// one that grew. A truncated or replaced file is read from its start; a file renamed away while the task runs is read to
// its end first.
//
// The sink appends one line a record to one file, and keeps in FILE.offsets how long the file was, and up to which
// offsets, when it was last synced. A restarted sink cuts off what came after and has it delivered again, so each record
// is in the file exactly once. The package never deletes a file that it did not make.
package file
