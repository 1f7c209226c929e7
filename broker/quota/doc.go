// Package quota owns how much clients may use: rates over sliding windows (bytes produced and fetched, share of request time)
// and token buckets (controller mutations), and the lookup of the limit that holds for a user and client id. It promises
// Kafka's arithmetic: the throttle times are those that bring the observed rate back to the limit. It is pure: time is an
// argument. It never delays anything, knows no requests, and stores no limits; they come from the metadata.
package quota
