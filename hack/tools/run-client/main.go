// Command run-client is a client of HTTPS with Go's own library, with which the proxy of a harness run is tested and
// measured (e2e/tests/node/interception, workshop/src/bench/harness_proxy.rs). It has no settings of its own:
//
//	run-client get URL               writes the body of the response
//	run-client connect URL COUNT     opens COUNT connections, with a request each
//	run-client keep URL COUNT        sends COUNT requests over one connection
//	run-client load URL COUNT        sends COUNT requests over 8 connections
//	run-client receive URL COUNT     receives the body of COUNT responses
//
// The last four write a line of JSON with the duration of each request in microseconds, or of all of them.
package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// report is the result of a measurement.
type report struct {
	Action       string  `json:"action"`
	Microseconds []int64 `json:"microseconds"`
	Bytes        int64   `json:"bytes"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) == 2 && words[0] == "get" {
		_, err := get(client(true), words[1], os.Stdout)
		return err
	}
	if len(words) != 3 {
		return fmt.Errorf("usage: run-client get|connect|keep|load|receive URL [COUNT]")
	}
	action, url := words[0], words[1]
	count, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	result := report{Action: action}
	switch action {
	case "connect":
		result.Microseconds, err = times(client(false), url, count)
	case "keep":
		kept := client(true)
		// The first request opens the connection.
		if _, err = times(kept, url, 1); err == nil {
			result.Microseconds, err = times(kept, url, count)
		}
	case "load":
		result.Microseconds, err = load(url, count)
	case "receive":
		began := time.Now()
		kept := client(true)
		for range count {
			var size int64
			if size, err = get(kept, url, io.Discard); err != nil {
				break
			}
			result.Bytes += size
		}
		result.Microseconds = []int64{time.Since(began).Microseconds()}
	default:
		return fmt.Errorf("no action: %s", action)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// client returns a client of HTTP/1.1 which keeps connections, or opens one for each request.
func client(keeps bool) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: !keeps,
		// An empty map: no HTTP/2, which the upstream does not speak.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}}
}

func get(client *http.Client, url string, to io.Writer) (int64, error) {
	response, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	size, err := io.Copy(to, response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return size, err
}

func times(client *http.Client, url string, count int) ([]int64, error) {
	all := make([]int64, 0, count)
	for range count {
		began := time.Now()
		if _, err := get(client, url, io.Discard); err != nil {
			return nil, err
		}
		all = append(all, time.Since(began).Microseconds())
	}
	return all, nil
}

// load sends requests over eight connections, and returns the duration of all of them.
func load(url string, count int) ([]int64, error) {
	const connections = 8
	var group sync.WaitGroup
	failed := make(chan error, connections)
	began := time.Now()
	for range connections {
		group.Go(func() {
			kept := client(true)
			for range count / connections {
				if _, err := get(kept, url, io.Discard); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return []int64{time.Since(began).Microseconds()}, nil
	}
}
