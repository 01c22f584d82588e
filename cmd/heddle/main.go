// Command heddle is the whole of Heddle in one binary: every role is a subcommand.
package main

func main() {}
