// Command client-go is a program with client-go, with which the gate is tested on a real node
// (e2e/tests/node/gate_clients.rs). It has the same actions as client-python/client.py:
//
//	client-go KUBECONFIG NAMESPACE POD CONTAINER ACTION [ARGUMENT…]
//
// The actions are
//
//	exec WORD…      runs a command; its streams are those of this program, and so is its exit code
//	input WORD…     the same, with the standard input of this program
//	terminal WORD…  the same on a terminal of 33 rows and 101 columns
//	attach          attaches to the container, with the standard input of this program
//	forward PORT    sends the standard input of this program to the port, and writes as many bytes of the answer
//	logs            writes the log
//	follow BYTES    follows the log, and writes this many bytes of it
//
// The variable STREAM_PROTOCOL is WebSocket (the default) or SPDY.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

// client is a container of a pod, and the connection to it.
type client struct {
	config    *rest.Config
	clientset *kubernetes.Clientset
	namespace string
	pod       string
	container string
	spdy      bool
}

func main() {
	err := run(os.Args[1:])
	var exit exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		os.Exit(exit.ExitStatus())
	default:
		fmt.Fprintln(os.Stderr, "client-go:", err)
		os.Exit(100)
	}
}

func run(arguments []string) error {
	if len(arguments) < 5 {
		return errors.New("usage: client-go KUBECONFIG NAMESPACE POD CONTAINER ACTION [ARGUMENT…]")
	}
	config, err := clientcmd.BuildConfigFromFlags("", arguments[0])
	if err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	c := &client{
		config:    config,
		clientset: clientset,
		namespace: arguments[1],
		pod:       arguments[2],
		container: arguments[3],
	}
	switch protocol := os.Getenv("STREAM_PROTOCOL"); protocol {
	case "", "WebSocket":
	case "SPDY":
		c.spdy = true
	default:
		return fmt.Errorf("STREAM_PROTOCOL is WebSocket or SPDY, not %q", protocol)
	}
	action, arguments := arguments[4], arguments[5:]
	streams := remotecommand.StreamOptions{Stdout: os.Stdout, Stderr: os.Stderr}
	switch action {
	case "exec":
		return c.exec(arguments, streams)
	case "input":
		streams.Stdin = os.Stdin
		return c.exec(arguments, streams)
	case "terminal":
		streams.Stdin, streams.Stderr, streams.Tty = os.Stdin, nil, true
		streams.TerminalSizeQueue = &sizes{{Width: 101, Height: 33}}
		return c.exec(arguments, streams)
	case "attach":
		streams.Stdin = os.Stdin
		return c.attach(streams)
	case "forward":
		return c.forward(arguments[0])
	case "logs":
		return c.logs(&corev1.PodLogOptions{Container: c.container}, nil)
	case "follow":
		length, err := strconv.ParseInt(arguments[0], 10, 64)
		if err != nil {
			return err
		}
		return c.logs(&corev1.PodLogOptions{Container: c.container, Follow: true}, &length)
	default:
		return fmt.Errorf("action %q does not exist", action)
	}
}

func (c *client) exec(command []string, streams remotecommand.StreamOptions) error {
	return c.stream("exec", &corev1.PodExecOptions{
		Container: c.container,
		Command:   command,
		Stdin:     streams.Stdin != nil,
		Stdout:    streams.Stdout != nil,
		Stderr:    streams.Stderr != nil,
		TTY:       streams.Tty,
	}, streams)
}

func (c *client) attach(streams remotecommand.StreamOptions) error {
	return c.stream("attach", &corev1.PodAttachOptions{
		Container: c.container,
		Stdin:     streams.Stdin != nil,
		Stdout:    streams.Stdout != nil,
		Stderr:    streams.Stderr != nil,
		TTY:       streams.Tty,
	}, streams)
}

// subresource returns a request for a subresource of the pod.
func (c *client) subresource(name string) *rest.Request {
	request := c.clientset.CoreV1().RESTClient().Post()
	return request.Resource("pods").Namespace(c.namespace).Name(c.pod).SubResource(name)
}

func (c *client) stream(name string, options runtime.Object, streams remotecommand.StreamOptions) error {
	address := c.subresource(name).VersionedParams(options, scheme.ParameterCodec).URL()
	executor, err := c.executor(address)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(context.Background(), streams)
}

func (c *client) executor(address *url.URL) (remotecommand.Executor, error) {
	if c.spdy {
		return remotecommand.NewSPDYExecutor(c.config, http.MethodPost, address)
	}
	return remotecommand.NewWebSocketExecutor(c.config, http.MethodGet, address.String())
}

// forward sends standard input to a port, and writes as many bytes of the answer.
func (c *client) forward(port string) error {
	dialer, err := c.dialer(c.subresource("portforward").URL())
	if err != nil {
		return err
	}
	stop, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	defer close(stop)
	forwarder, err := portforward.New(dialer, []string{":" + port}, stop, ready, io.Discard, os.Stderr)
	if err != nil {
		return err
	}
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		return err
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		return err
	}
	defer conn.Close()
	sent, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	go conn.Write(sent)
	_, err = io.CopyN(os.Stdout, conn, int64(len(sent)))
	return err
}

func (c *client) dialer(address *url.URL) (httpstream.Dialer, error) {
	if !c.spdy {
		return portforward.NewSPDYOverWebsocketDialer(address, c.config)
	}
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return nil, err
	}
	return spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, address), nil
}

// logs writes a log, or the first bytes of it.
func (c *client) logs(options *corev1.PodLogOptions, length *int64) error {
	pods := c.clientset.CoreV1().Pods(c.namespace)
	log, err := pods.GetLogs(c.pod, options).Stream(context.Background())
	if err != nil {
		return err
	}
	defer log.Close()
	if length == nil {
		_, err = io.Copy(os.Stdout, log)
		return err
	}
	_, err = io.CopyN(os.Stdout, log, *length)
	return err
}

// sizes are the sizes of a terminal, in order.
type sizes []remotecommand.TerminalSize

// Next returns the next size, and nil after the last.
func (s *sizes) Next() *remotecommand.TerminalSize {
	if len(*s) == 0 {
		return nil
	}
	size := (*s)[0]
	*s = (*s)[1:]
	return &size
}
