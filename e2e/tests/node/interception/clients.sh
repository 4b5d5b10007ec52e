#!/bin/sh
# Clients as users have them, without a setting of their own. A line of the report has the client and its exit code.
cd "$PADDOCK_WORKSPACE" || exit 1
tried() {
    name=$1
    shift
    output=$("$@" 2>&1)
    code=$?
    output=$(printf '%s' "$output" | tr '\n"\\' "   " | tail -c 600)
    printf '{"client":"%s","code":%d,"output":"%s"}\n' "$name" "$code" "$output" >>"$PADDOCK_WORKSPACE/report.jsonl"
}
for client in $(cat "$PADDOCK_PROMPT_PATH"); do
    case $client in
    curl) tried curl curl --silent --show-error --fail --max-time 60 https://echo.test/echo ;;
    git) tried git git clone --quiet https://echo.test/repository.git clone ;;
    python) tried python python3 -s /clients/requests_get.py ;;
    node) tried node node /clients/fetch.mjs ;;
    go) tried go run-client get https://echo.test/echo ;;
    websocket) tried websocket python3 -s /clients/websocket.py ;;
    esac
done
printf '{"client":"end","code":0,"output":""}\n' >>"$PADDOCK_WORKSPACE/report.jsonl"
while [ ! -e "$PADDOCK_WORKSPACE/release" ]; do sleep 0.1; done
