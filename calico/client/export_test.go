package client

import "time"

// CheckEvery sets how often watches make sure that they still follow the same cluster.
func CheckEvery(c *Client, every time.Duration) { c.checkEvery = every }
