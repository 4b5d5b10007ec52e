//! Standard error of a command without shown output, such as `tar` of `ozctl cp`. The lines of oz in it are
//! printed at once: a session may wait for a moderator.

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::context::Context;

/// The beginning of each line that oz adds to a session.
const OURS: &str = "oz: ";
/// The maximum length of the text that is kept, which fits an error message, and of a line.
const ENOUGH: usize = 4096;

/// Reads a stream until its end. Prints the lines of oz, and returns the rest.
pub(crate) async fn read(context: &Context, stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut lines = NoticeLines::default();
    if let Some(mut stream) = stream {
        let mut buffer = vec![0; 1024];
        while let Ok(count) = stream.read(&mut buffer).await {
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            for notice in lines.add(bytes) {
                context.say_plain(&notice);
            }
        }
    }
    lines.rest()
}

/// The lines of a stream that were read so far.
#[derive(Debug, Default)]
struct NoticeLines {
    /// The text without the lines of oz.
    said: Vec<u8>,
    /// The line that is not complete yet.
    begun: Vec<u8>,
}

impl NoticeLines {
    /// Adds bytes, and returns the lines of oz that they complete.
    fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut notices = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.begun.len() > ENOUGH {
                notices.extend(self.end_line());
            }
        }
        notices
    }

    /// Ends a line, and returns it if it is a line of oz.
    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.begun);
        let text = String::from_utf8_lossy(&line);
        if text.starts_with(OURS) {
            return Some(text.trim_end().to_owned());
        }
        if self.said.len() < ENOUGH {
            self.said.extend_from_slice(&line);
        }
        None
    }

    fn rest(mut self) -> String {
        self.said.append(&mut self.begun);
        String::from_utf8_lossy(&self.said).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_oz_are_separate_from_the_text_of_the_command() {
        let waits = "oz: this session opens once a user of leads watches it";
        let gate = format!("\r\n{waits}\r\n");
        for (pieces, notices, rest) in [
            (vec![gate.as_str()], vec![waits], ""),
            (vec!["\r\noz: this ses", &gate[14..]], vec![waits], ""),
            (vec!["tar: a: Not found"], vec![], "tar: a: Not found"),
            (
                vec!["tar: a: Not found\n", &gate, "tar: b: Not found\n"],
                vec![waits],
                "tar: a: Not found\n\r\ntar: b: Not found",
            ),
            (vec!["tar: oz: Not found\n"], vec![], "tar: oz: Not found"),
            (vec!["oz: not complete"], vec![], "oz: not complete"),
        ] {
            let mut lines = NoticeLines::default();
            let found: Vec<_> = pieces
                .iter()
                .flat_map(|piece| lines.add(piece.as_bytes()))
                .collect();
            assert_eq!(found, notices, "{pieces:?}");
            assert_eq!(lines.rest(), rest, "{pieces:?}");
        }
    }

    #[test]
    fn endless_line_takes_bounded_memory() {
        let mut lines = NoticeLines::default();
        for _ in 0..100 {
            assert!(lines.add(&[b'x'; ENOUGH]).is_empty());
        }
        assert!(lines.said.len() + lines.begun.len() <= 4 * ENOUGH);
    }
}
