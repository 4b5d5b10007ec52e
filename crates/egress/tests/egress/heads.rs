//! Heads in the bytes of a connection: one with more than one length is found, wherever it begins.

use oz_egress::heads::Heads;

/// Returns the number of the request with more than one length, in bytes that arrive at once and one by one.
fn found(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let at_once = Heads::default().read(bytes);
    let mut heads = Heads::default();
    let one_by_one = bytes.chunks(1).find_map(|byte| heads.read(byte));
    assert_eq!(at_once, one_by_one, "{text:?}");
    at_once
}

#[test]
fn head_with_more_than_one_length_is_found() {
    for headers in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "content-length:5\r\nHost: a\r\nTRANSFER-ENCODING:chunked",
        "Content-Length: 0\r\nContent-Length: 0",
        "Content-Length: 0\r\nContent-Length: 5",
        "Content-Length: x\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "Content-Length : 5\r\nTransfer-Encoding\t: chunked",
        "Content-Length: 5\nTransfer-Encoding: chunked",
    ] {
        let text = format!("POST / HTTP/1.1\r\n{headers}\r\n\r\n");
        assert_eq!(found(&text), Some(1), "{headers}");
        // Not before its end.
        assert_eq!(found(text.trim_end()), None, "{headers}");
        // Also after other requests.
        for before in [
            "GET / HTTP/1.1\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\n\n",
            "PUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\na\r\n\r\n",
            "PUT / HTTP/1.1\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n\
             A;x=y\r\n\r\n\r\n\r\n\r\n\r\n\r\n1\r\n\n\r\n000\r\nX: y\r\n\r\n",
        ] {
            assert_eq!(found(&format!("{before}{text}")), Some(2), "{before:?}");
        }
    }
}

#[test]
fn body_and_other_headers_are_no_head() {
    let two = "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n";
    let length = two.len();
    for text in [
        format!("PUT / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{two}"),
        format!(
            "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{two}\r\n0\r\n\r\n"
        ),
        "GET / HTTP/1.1\r\nX-Content-Length: 5\r\nContent-Length: 5\r\nContent-Length-X: 5\r\n\r\n"
            .to_owned(),
        // The target, and a long value.
        "GET Content-Length:5 HTTP/1.1\r\nContent-Length: 5\r\n\r\n".to_owned(),
        format!(
            "GET / HTTP/1.1\r\nX: {}\r\nContent-Length: 5\r\n\r\n",
            "a".repeat(100_000)
        ),
        // hyper refuses these.
        format!("PUT / HTTP/1.1\r\nContent-Length: five\r\n\r\n{two}"),
        format!("PUT / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n{two}"),
        format!("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n{two}"),
        format!("PUT / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n{two}"),
    ] {
        assert_eq!(found(&text), None, "{text:?}");
    }
}
