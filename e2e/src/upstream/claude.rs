//! Enough of Claude's Messages API for an agent: a message at once or as a stream of events, and an error for a key
//! that is not the upstream's.

use http::StatusCode;
use serde_json::{Value, json};

/// The host of Claude's API.
pub const ANTHROPIC: &str = "api.anthropic.com";

/// A response of the API.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    /// A JSON object.
    Object(StatusCode, Value),
    /// Events of a stream.
    Events(Vec<Value>),
}

/// Returns the response to a request for a message.
pub(super) fn messages(is_known_key: bool, body: &[u8]) -> Reply {
    if !is_known_key {
        return failure(
            StatusCode::UNAUTHORIZED,
            "authentication_error",
            "invalid x-api-key",
        );
    }
    let Ok(request) = serde_json::from_slice::<Value>(body) else {
        return failure(
            StatusCode::BAD_REQUEST,
            "invalid_request_error",
            "the body is not JSON",
        );
    };
    let text = format!("You said: {}", said(&request));
    let usage = json!({"input_tokens": 8, "output_tokens": 4});
    let message = |content: Value, reason: Value| {
        json!({
            "id": "msg_01", "type": "message", "role": "assistant", "model": request["model"],
            "content": content, "stop_reason": reason, "stop_sequence": null, "usage": usage,
        })
    };
    if request["stream"] != json!(true) {
        let content = json!([{"type": "text", "text": text}]);
        return Reply::Object(StatusCode::OK, message(content, json!("end_turn")));
    }
    let block = json!({"type": "text", "text": ""});
    let mut events = vec![
        json!({"type": "message_start", "message": message(json!([]), Value::Null)}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "ping"}),
    ];
    events.extend(text.split_inclusive(' ').map(|word| {
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}})
    }));
    events.extend([
        json!({"type": "content_block_stop", "index": 0}),
        json!({
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": null},
            "usage": {"output_tokens": 4},
        }),
        json!({"type": "message_stop"}),
    ]);
    Reply::Events(events)
}

fn failure(status: StatusCode, kind: &str, message: &str) -> Reply {
    let error = json!({"type": kind, "message": message});
    Reply::Object(status, json!({"type": "error", "error": error}))
}

/// Returns the text of the last message of a request: its content is a text, or a list of blocks.
fn said(request: &Value) -> String {
    let last = request["messages"].as_array().and_then(|all| all.last());
    match last.map(|message| &message["content"]) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let texts = blocks.iter().filter_map(|block| block["text"].as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_whole_or_a_stream_of_words() {
        let asked = |stream: bool| {
            let messages =
                json!([{"role": "user", "content": [{"type": "text", "text": "two words"}]}]);
            json!({"model": "m", "stream": stream, "messages": messages}).to_string()
        };
        let Reply::Object(StatusCode::OK, whole) = messages(true, asked(false).as_bytes()) else {
            unreachable!("it is an object");
        };
        assert_eq!(whole["content"][0]["text"], "You said: two words");
        let Reply::Events(events) = messages(true, asked(true).as_bytes()) else {
            unreachable!("it is a stream");
        };
        let texts = events.iter().filter_map(|it| it["delta"]["text"].as_str());
        assert_eq!(texts.collect::<String>(), "You said: two words");
        assert_eq!(events.last().unwrap()["type"], "message_stop");
        let Reply::Object(status, _) = messages(false, b"{}") else {
            unreachable!("it is an object");
        };
        assert_eq!(status, StatusCode::UNAUTHORIZED);
    }
}
