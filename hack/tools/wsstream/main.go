// Command wsstream reads the frames of a client of exec as API server and kubelet do: with the package wsstream of
// Kubernetes, over golang.org/x/net/websocket. The tests of the gate compare the gate with it
// (crates/gate/src/socket/tests/differential/mod.rs).
//
// It reads questions from standard input and writes an answer to each. A question has three parts: the name of a
// sub-protocol, the option stdin ("true" or "false"), and the bytes that a client sent after the handshake. The answer
// has five parts: the bytes that reached each channel. A part is a length of four bytes, big-endian, and the bytes.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/klog/v2"
)

// createChannels returns the channels of exec as API server and kubelet make them, in functions of this name.
func createChannels(stdin bool) []wsstream.ChannelType {
	channels := []wsstream.ChannelType{
		wsstream.IgnoreChannel,
		wsstream.WriteChannel,
		wsstream.WriteChannel,
		wsstream.WriteChannel,
		wsstream.ReadChannel,
	}
	if stdin {
		channels[0] = wsstream.ReadChannel
	}
	return channels
}

func main() {
	// The library logs each malformed frame.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	input, output := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		err := answer(input, output)
		if err == io.EOF {
			return
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "wsstream:", err)
			os.Exit(1)
		}
	}
}

// answer reads a question and writes its answer; it returns io.EOF after the last question.
func answer(input *bufio.Reader, output *bufio.Writer) error {
	protocol, err := readPart(input)
	if err != nil {
		return err
	}
	stdin, err := readPart(input)
	if err != nil {
		return fmt.Errorf("failed to read the option stdin: %w", err)
	}
	sent, err := readPart(input)
	if err != nil {
		return fmt.Errorf("failed to read the bytes of the client: %w", err)
	}
	reached, err := receive(string(protocol), string(stdin) == "true", sent)
	if err != nil {
		return err
	}
	for _, part := range reached {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(part)))
		output.Write(length[:])
		output.Write(part)
	}
	return output.Flush()
}

func readPart(input *bufio.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(input, length[:]); err != nil {
		return nil, err
	}
	part := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(input, part)
	return part, err
}

// receive returns the bytes that reach each channel if a client sends these bytes and closes the connection.
func receive(protocol string, stdin bool, sent []byte) ([][]byte, error) {
	request := &http.Request{
		Method: http.MethodGet,
		Host:   "localhost",
		URL:    &url.URL{Path: "/exec"},
		Header: http.Header{
			"Upgrade":                {"websocket"},
			"Connection":             {"Upgrade"},
			"Sec-Websocket-Key":      {"dGhlIHNhbXBsZSBub25jZQ=="},
			"Sec-Websocket-Version":  {"13"},
			"Sec-Websocket-Protocol": {protocol},
		},
	}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		protocol: {
			// As API server and kubelet have it.
			Binary:   protocol != "v4.base64.channel.k8s.io" && protocol != "base64.channel.k8s.io",
			Channels: createChannels(stdin),
		},
	})
	client := &connection{sent: bytes.NewReader(sent), opened: make(chan struct{})}
	taken, streams, err := conn.Open(client, request)
	close(client.opened)
	if err != nil {
		return nil, fmt.Errorf("failed to open a connection: %w", err)
	}
	if taken != protocol {
		return nil, fmt.Errorf("the server took sub-protocol %q, not %q", taken, protocol)
	}
	reached := make([][]byte, len(streams))
	var all sync.WaitGroup
	for number, stream := range streams {
		all.Add(1)
		go func() {
			defer all.Done()
			// The stream ends with the connection, or when the client closes the channel.
			reached[number], _ = io.ReadAll(stream)
		}()
	}
	all.Wait()
	return reached, conn.Close()
}

// connection is a connection whose client has sent everything, and reads nothing. Nothing is read from it before it is
// open: the library takes a connection that ends earlier for one that failed.
type connection struct {
	sent   *bytes.Reader
	opened chan struct{}
}

func (c *connection) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

func (c *connection) Header() http.Header { return http.Header{} }
func (c *connection) WriteHeader(int)     {}
func (c *connection) Read(buffer []byte) (int, error) {
	<-c.opened
	return c.sent.Read(buffer)
}
func (c *connection) Write(bytes []byte) (int, error)  { return len(bytes), nil }
func (c *connection) Close() error                     { return nil }
func (c *connection) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "server"} }
func (c *connection) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: "client"} }
func (c *connection) SetDeadline(time.Time) error      { return nil }
func (c *connection) SetReadDeadline(time.Time) error  { return nil }
func (c *connection) SetWriteDeadline(time.Time) error { return nil }
