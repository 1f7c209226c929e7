// Package requests sends the same requests to Apache Kafka and to Varve and compares the answers field by field. A generator
// that knows what the brokers were told makes valid requests, lets some go wrong in ways that it knows (stale epochs, wrong
// sequences, unknown topics), and mutates fields of others to their bounds; frames that are no requests are compared by
// whether they are answered. A seed and a round name a run of requests about topics, groups and producers of its own; many rounds
// run at the same time, and one ends where the brokers' states part, since everything behind that would differ too. What may
// differ is listed in differences_test.go with its reason: another difference fails the test, and so does a listed one that a
// long run no longer finds. Build tag differential; make differential runs it.
package requests
