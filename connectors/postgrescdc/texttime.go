package postgrescdc

import (
	"bytes"
	"math"
	"strconv"
)

const microsPerDay = 86_400_000_000

// What Debezium emits for infinite timestamps, in microseconds, and the same in milliseconds.
const (
	infinityMicros    = 9_223_372_036_825_200_000
	negInfinityMicros = -9_223_372_036_832_400_000
)

// daysFromCivil counts days from 1970-01-01 in the proleptic Gregorian calendar; year 0 is 1 BC.
func daysFromCivil(y, m, d int) int64 {
	if m <= 2 {
		y--
	}
	era := y / 400
	if y < 0 {
		era = (y - 399) / 400
	}
	yoe := y - era*400
	mp := (m + 9) % 12
	doy := (153*mp+2)/5 + d - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return int64(era)*146097 + int64(doe) - 719468
}

// civil is a date and a time of day as PostgreSQL's ISO style writes them.
type civil struct {
	year, month, day int
	micros           int64 // of the day; 24:00:00 is possible for time
}

// parseDatePart reads YYYY-MM-DD with four or more digits of the year, and returns what is left.
func parseDatePart(b []byte) (c civil, rest []byte, ok bool) {
	i := bytes.IndexByte(b, '-')
	if i < 4 || len(b) < i+6 || b[i+3] != '-' {
		return c, nil, false
	}
	var ok1, ok2, ok3 bool
	c.year, ok1 = digits(b, i)
	c.month, ok2 = digits(b[i+1:], 2)
	c.day, ok3 = digits(b[i+4:], 2)
	ok = ok1 && ok2 && ok3 && i < 10 && c.month >= 1 && c.month <= 12 && c.day >= 1 && c.day <= 31
	return c, b[i+6:], ok
}

// parseClock reads HH:MM:SS[.ffffff] and returns what is left.
func parseClock(b []byte) (micros int64, rest []byte, ok bool) {
	if len(b) < 8 || b[2] != ':' || b[5] != ':' {
		return 0, nil, false
	}
	h, ok1 := digits(b, 2)
	m, ok2 := digits(b[3:], 2)
	s, ok3 := digits(b[6:], 2)
	if !ok1 || !ok2 || !ok3 || m > 59 || s > 60 || h > 24 {
		return 0, nil, false
	}
	micros = int64(h*3600+m*60+s) * 1_000_000
	b = b[8:]
	if len(b) > 1 && b[0] == '.' {
		i, scale := 1, int64(100_000)
		for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
			micros += int64(b[i]-'0') * scale
			scale /= 10
		}
		b = b[i:]
	}
	return micros, b, true
}

// parseTimestamp reads a timestamp, with or without the zone +00 that a session in UTC writes.
func parseTimestamp(b []byte) (c civil, ok bool) {
	c, rest, ok := parseDatePart(b)
	if !ok || len(rest) == 0 || rest[0] != ' ' {
		return c, false
	}
	if c.micros, rest, ok = parseClock(rest[1:]); !ok {
		return c, false
	}
	rest = bytes.TrimPrefix(rest, []byte("+00"))
	return c, c.era(rest)
}

// era takes the mark of years before Christ into account; nothing else may be left.
func (c *civil) era(rest []byte) bool {
	if string(rest) == " BC" {
		c.year = 1 - c.year
		return true
	}
	return len(rest) == 0
}

func (c civil) days() int64 { return daysFromCivil(c.year, c.month, c.day) }

func infinite(b []byte) int {
	switch string(b) {
	case "infinity":
		return 1
	case "-infinity":
		return -1
	}
	return 0
}

func (c *column) appendDate(b, text []byte) ([]byte, error) {
	switch infinite(text) {
	case 1:
		return appendInt(b, math.MaxInt32), nil
	case -1:
		return appendInt(b, math.MinInt32), nil
	}
	d, rest, ok := parseDatePart(text)
	if !ok || !d.era(rest) {
		return b, c.errorf("%q is no date", text)
	}
	return appendInt(b, d.days()), nil
}

func (c *column) appendTime(b, text []byte) ([]byte, error) {
	micros, rest, ok := parseClock(text)
	if !ok || len(rest) > 0 {
		return b, c.errorf("%q is no time of day", text)
	}
	switch c.form {
	case formTimeMillis:
		return appendInt(b, micros/1000), nil
	case formTimeNanos:
		return appendInt(b, micros*1000), nil
	}
	return appendInt(b, micros), nil
}

func (c *column) appendTimestamp(b, text []byte) ([]byte, error) {
	if sign := infinite(text); sign != 0 {
		return appendInt(b, c.infinity(sign)), nil
	}
	t, ok := parseTimestamp(text)
	if !ok {
		return b, c.errorf("%q is no timestamp", text)
	}
	days := t.days()
	switch c.form {
	case formTimestampMillis:
		return appendInt(b, days*86_400_000+t.micros/1000), nil
	case formTimestampNanos:
		if days < -106751 || days > 106750 {
			return b, c.errorf("%s is outside the years 1677 to 2262 that time.precision.mode=nanoseconds holds", text)
		}
		return appendInt(b, (days*microsPerDay+t.micros)*1000), nil
	}
	return appendInt(b, days*microsPerDay+t.micros), nil
}

func (c *column) infinity(sign int) int64 {
	v := int64(infinityMicros)
	if sign < 0 {
		v = negInfinityMicros
	}
	switch {
	case c.form == formTimestampMillis:
		return v / 1000
	case c.form == formTimestampNanos && sign > 0:
		return math.MaxInt64
	case c.form == formTimestampNanos:
		return math.MinInt64
	}
	return v
}

// appendTimestampTZ turns '2024-02-29 12:34:56.789+00' into '2024-02-29T12:34:56.789000Z'.
func (c *column) appendTimestampTZ(b, text []byte) ([]byte, error) {
	n := len(text)
	if n >= 22 && n <= 29 && text[4] == '-' && text[10] == ' ' && text[n-3] == '+' && text[n-2] == '0' && text[n-1] == '0' {
		b = append(b, 27<<1)
		start := len(b)
		b = append(b, "0000-00-00T00:00:00.000000Z"...)
		out := b[start:]
		copy(out, text[:10])
		copy(out[11:26], text[11:n-3])
		return b, nil
	}
	if infinite(text) != 0 {
		return appendBytes(b, text), nil
	}
	t, ok := parseTimestamp(text)
	if !ok {
		return b, c.errorf("%q is no timestamp in UTC", text)
	}
	return appendBytes(b, append(appendISOTimestamp(make([]byte, 0, 40), t, 6), 'Z')), nil
}

// appendISOTimestamp writes a date as java.time does: years of four digits, more with a sign.
func appendISOTimestamp(b []byte, t civil, fraction int) []byte {
	b = append(appendISODate(b, t), 'T')
	return appendISOClock(b, t.micros, fraction)
}

func appendISODate(b []byte, t civil) []byte {
	y := t.year
	switch {
	case y > 9999:
		b = append(b, '+')
	case y < 0:
		b = append(b, '-')
		y = -y
	}
	b = appendPadded(b, y, 4)
	b = appendPadded(append(b, '-'), t.month, 2)
	return appendPadded(append(b, '-'), t.day, 2)
}

// appendISOClock writes HH:MM:SS and a fraction of so many digits; -1 is as many as needed.
func appendISOClock(b []byte, micros int64, fraction int) []byte {
	s := int(micros / 1_000_000)
	b = appendPadded(b, s/3600, 2)
	b = appendPadded(append(b, ':'), s/60%60, 2)
	b = appendPadded(append(b, ':'), s%60, 2)
	if fraction < 0 {
		return appendFraction(b, micros%1_000_000)
	}
	return appendPadded(append(b, '.'), int(micros%1_000_000), 6)
}

// appendFraction writes a fraction of a second without zeros at its end, nothing for none.
func appendFraction(b []byte, micros int64) []byte {
	if micros == 0 {
		return b
	}
	b = appendPadded(append(b, '.'), int(micros), 6)
	return bytes.TrimRight(b, "0")
}

func appendPadded(b []byte, v, width int) []byte {
	n := 1
	for x := v; x >= 10; x /= 10 {
		n++
	}
	for ; n < width; n++ {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, int64(v), 10)
}

func (c *column) appendISO(b, text []byte) ([]byte, error) {
	if infinite(text) != 0 {
		return appendBytes(b, text), nil
	}
	buf := make([]byte, 0, 40)
	switch c.form {
	case formISOTime:
		micros, rest, ok := parseClock(text)
		if !ok || len(rest) > 0 {
			return b, c.errorf("%q is no time of day", text)
		}
		buf = appendISOClock(buf, micros, -1)
	case formISODate:
		d, rest, ok := parseDatePart(text)
		if !ok || !d.era(rest) {
			return b, c.errorf("%q is no date", text)
		}
		buf = appendISODate(buf, d)
	default:
		t, ok := parseTimestamp(text)
		if !ok {
			return b, c.errorf("%q is no timestamp", text)
		}
		buf = appendISOTimestamp(buf, t, -1)
	}
	return appendBytes(b, append(buf, 'Z')), nil
}

// appendTimeTZ turns '12:34:56.789+05:30' into the same moment in UTC, '07:04:56.789Z'.
func (c *column) appendTimeTZ(b, text []byte) ([]byte, error) {
	micros, rest, ok := parseClock(text)
	if !ok || len(rest) < 3 || rest[0] != '+' && rest[0] != '-' {
		return b, c.errorf("%q is no time with a zone", text)
	}
	sign := int64(1)
	if rest[0] == '-' {
		sign = -1
	}
	unit := int64(3600)
	var zone int64
	for _, part := range bytes.Split(rest[1:], []byte(":")) {
		v, ok := parseInt(part)
		if !ok || unit == 0 {
			return b, c.errorf("%q is no time with a zone", text)
		}
		zone += v * unit
		unit /= 60
	}
	micros = ((micros-sign*zone*1_000_000)%microsPerDay + microsPerDay) % microsPerDay
	return appendBytes(b, append(appendISOClock(make([]byte, 0, 20), micros, -1), 'Z')), nil
}

// span is an interval in its three parts.
type span struct {
	months, days, micros int64
}

// parseInterval reads the style postgres: '1 year 2 mons -3 days +04:05:06.789'.
func parseInterval(text []byte) (s span, ok bool) {
	fields := bytes.Fields(text)
	for i := 0; i < len(fields); i++ {
		f := fields[i]
		if bytes.IndexByte(f, ':') >= 0 {
			micros, ok := parseSignedClock(f)
			if !ok || i != len(fields)-1 {
				return s, false
			}
			s.micros = micros
			break
		}
		v, ok := parseInt(f)
		if !ok || i+1 == len(fields) {
			return s, false
		}
		i++
		switch string(bytes.TrimSuffix(fields[i], []byte("s"))) {
		case "year":
			s.months += 12 * v
		case "mon":
			s.months += v
		case "day":
			s.days += v
		default:
			return s, false
		}
	}
	return s, len(fields) > 0
}

// parseSignedClock reads [+-]H…H:MM:SS[.ffffff].
func parseSignedClock(b []byte) (int64, bool) {
	sign := int64(1)
	if b[0] == '-' || b[0] == '+' {
		if b[0] == '-' {
			sign = -1
		}
		b = b[1:]
	}
	i := bytes.IndexByte(b, ':')
	if i < 1 {
		return 0, false
	}
	h, ok := parseInt(b[:i])
	if !ok {
		return 0, false
	}
	var buf [32]byte
	micros, rest, ok := parseClock(append(append(buf[:0], "00"...), b[i:]...))
	return sign * (h*3_600_000_000 + micros), ok && len(rest) == 0
}

func (c *column) appendInterval(b, text []byte) ([]byte, error) {
	s, ok := parseInterval(text)
	if !ok {
		return b, c.errorf("%q is no interval", text)
	}
	if c.form == formInterval {
		// A month is 365.25/12 = 30.4375 days.
		return appendInt(b, s.months*304375*(microsPerDay/10000)+s.days*microsPerDay+s.micros), nil
	}
	buf := make([]byte, 0, 48)
	part := func(v int64, unit byte) { buf = append(strconv.AppendInt(buf, v, 10), unit) }
	buf = append(buf, 'P')
	part(s.months/12, 'Y')
	part(s.months%12, 'M')
	part(s.days, 'D')
	buf = append(buf, 'T')
	part(s.micros/3_600_000_000, 'H')
	part(s.micros/60_000_000%60, 'M')
	seconds := s.micros % 60_000_000
	if seconds < 0 {
		buf = append(buf, '-')
		seconds = -seconds
	}
	buf = appendFraction(strconv.AppendInt(buf, seconds/1_000_000, 10), seconds%1_000_000)
	return appendBytes(b, append(buf, 'S')), nil
}
