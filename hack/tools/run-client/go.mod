module oz/hack/tools/run-client

go 1.26.0
