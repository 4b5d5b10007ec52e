//! The options of a request. The gate reads them once, by the rules of the API server, into values. It decides by these
//! values and forwards the query that it writes from them, so no second reader of the same bytes finds other values.

use oz_core::connect::Refusal;
use oz_core::validate::dns_subdomain;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The maximum length of a query that is read or forwarded, in bytes. The query contains the command.
pub const MAX_QUERY: usize = 64 << 10;

/// All characters except those that every reader takes literally, as in Go's `url.QueryEscape`. A space becomes `+`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b' ');

/// The kind of value that the API server reads for an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// True, except for `false` and `0`.
    Flag,
    /// A number of 64 bits.
    Number,
    /// Ports, separated by commas.
    Ports,
    /// The name of a container; empty for no container.
    Container,
    /// Text that does not affect a decision of the gate.
    Text,
    /// One word of a command. Only this kind may be repeated.
    Word,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Flag(bool),
    Number(i64),
    Ports(Vec<u16>),
    Text(String),
}

/// The options of a request, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(Vec<(&'static str, Value)>);

impl Options {
    /// Reads a query with these known options.
    ///
    /// # Errors
    /// If the query has an unknown option, repeats an option, or has a value of another kind.
    pub(crate) fn read(query: &str, known: &[(&'static str, Kind)]) -> Result<Self, Refusal> {
        let mut options = Self::default();
        for (name, value) in pairs(query)? {
            let Some((name, kind)) = known.iter().find(|(known, _)| *known == name) else {
                return Err(Refusal::new(
                    "OptionUnknown",
                    format!("the gate does not support the option {name:?} here; remove it"),
                ));
            };
            let repeated = options.0.iter().any(|(before, _)| before == name);
            if repeated && *kind != Kind::Word {
                return Err(Refusal::new(
                    "OptionRepeated",
                    format!(
                        "the option {name} is set twice, and the API server reads one; remove one"
                    ),
                ));
            }
            options.0.push((name, kind.read(name, value)?));
        }
        let length = options.to_query().len();
        if length > MAX_QUERY {
            return Err(too_long());
        }
        Ok(options)
    }

    /// Returns the query for the API server; empty if there are no options.
    #[must_use]
    pub fn to_query(&self) -> String {
        let pairs: Vec<String> = self
            .0
            .iter()
            .map(|(name, value)| {
                let value = value.to_text();
                let escaped = utf8_percent_encode(&value, ESCAPED).to_string();
                format!("{name}={}", escaped.replace(' ', "+"))
            })
            .collect();
        pairs.join("&")
    }

    /// Returns whether the request asks for a terminal.
    #[must_use]
    pub fn tty(&self) -> bool {
        self.flag("tty")
    }

    /// Returns whether the request asks for standard input.
    #[must_use]
    pub fn stdin(&self) -> bool {
        self.flag("stdin")
    }

    /// Returns whether the request asks for changes.
    #[must_use]
    pub fn watch(&self) -> bool {
        self.flag("watch")
    }

    /// Returns the name of the container, if the request names one.
    #[must_use]
    pub fn container(&self) -> Option<&str> {
        self.text("container").filter(|name| !name.is_empty())
    }

    /// Returns the words of the command.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        let words = self.0.iter().filter(|(name, _)| *name == "command");
        words
            .filter_map(|(_, value)| match value {
                Value::Text(word) => Some(word.clone()),
                _ => None,
            })
            .collect()
    }

    /// Returns the text of an option.
    pub(crate) fn text(&self, wanted: &str) -> Option<&str> {
        self.0.iter().find_map(|(name, value)| match value {
            Value::Text(text) if *name == wanted => Some(text.as_str()),
            _ => None,
        })
    }

    fn flag(&self, wanted: &str) -> bool {
        let is_set = |(name, value): &(&str, Value)| *name == wanted && *value == Value::Flag(true);
        self.0.iter().any(is_set)
    }
}

impl Kind {
    fn read(self, name: &str, value: String) -> Result<Value, Refusal> {
        let malformed = |what: &str| {
            Refusal::new(
                "OptionMalformed",
                format!("the option {name} must be {what}, not {value:?}"),
            )
        };
        match self {
            // As in `Convert_Slice_string_To_bool` of Kubernetes.
            Self::Flag => {
                let is_false = value == "0" || value.eq_ignore_ascii_case("false");
                Ok(Value::Flag(!is_false))
            }
            Self::Number => match value.parse() {
                Ok(number) => Ok(Value::Number(number)),
                Err(_) => Err(malformed("a number")),
            },
            Self::Ports => {
                let ports: Result<Vec<u16>, _> = value.split(',').map(str::parse).collect();
                ports
                    .map(Value::Ports)
                    .map_err(|_| malformed("numbers of ports, with commas between them"))
            }
            Self::Container if value.is_empty() || dns_subdomain(&value).is_ok() => {
                Ok(Value::Text(value))
            }
            Self::Container => Err(Refusal::new(
                "ContainerMalformed",
                "name one container, by its name",
            )),
            Self::Text | Self::Word => Ok(Value::Text(value)),
        }
    }
}

impl Value {
    fn to_text(&self) -> String {
        match self {
            Self::Flag(flag) => flag.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Ports(ports) => {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                ports.join(",")
            }
            Self::Text(text) => text.clone(),
        }
    }
}

/// Returns the names and values of a query. Rejects escaped names, and the pairs that Go's `url.ParseQuery` silently
/// omits: a pair with a broken escape or a semicolon.
fn pairs(query: &str) -> Result<Vec<(&str, String)>, Refusal> {
    if query.len() > MAX_QUERY {
        return Err(too_long());
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let value = decode(value).filter(|_| plain && !name.is_empty());
            value.map(|value| (name, value)).ok_or_else(|| {
                Refusal::new(
                    "QueryMalformed",
                    "failed to read the query; its names must be unescaped, and the escapes of its \
                     values complete and UTF-8",
                )
            })
        })
        .collect()
}

fn decode(value: &str) -> Option<String> {
    let escapes = value.split('%').skip(1);
    let mut whole = escapes.map(|rest| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if value.contains(';') || !whole.all(|whole| whole) {
        return None;
    }
    let spaced = value.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

fn too_long() -> Refusal {
    Refusal::new(
        "QueryTooLong",
        format!(
            "the query is longer than {MAX_QUERY} bytes; send long input through standard input"
        ),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KNOWN: &[(&str, Kind)] = &[
        ("tty", Kind::Flag),
        ("stdin", Kind::Flag),
        ("container", Kind::Container),
        ("ports", Kind::Ports),
        ("tailLines", Kind::Number),
        ("sinceTime", Kind::Text),
        ("command", Kind::Word),
    ];

    fn read(query: &str) -> Result<Options, &'static str> {
        Options::read(query, KNOWN).map_err(|refusal| refusal.reason)
    }

    #[test]
    fn flag_is_true_in_every_spelling_that_the_api_server_takes_for_true() {
        for (query, tty) in [
            ("tty=true", true),
            ("tty=1", true),
            ("tty=True", true),
            ("tty=TRUE", true),
            ("tty=t", true),
            ("tty=yes", true),
            ("tty=no", true),
            ("tty=%74rue", true),
            ("tty=", true),
            ("tty", true),
            ("tty=+false", true),
            ("tty=00", true),
            ("tty=false", false),
            ("tty=False", false),
            ("tty=FALSE", false),
            ("tty=%66alse", false),
            ("tty=0", false),
            ("tty=%30", false),
            ("stdin=true", false),
            ("", false),
        ] {
            let options = read(query).unwrap();
            assert_eq!(options.tty(), tty, "{query}");
            let sent = options.to_query();
            assert_eq!(sent.contains("tty=true"), tty, "{query} is sent as {sent}");
        }
    }

    #[test]
    fn option_that_is_repeated_unknown_or_malformed_is_refused() {
        for (query, reason) in [
            ("tty=true&tty=false", "OptionRepeated"),
            ("tty=false&tty=true", "OptionRepeated"),
            ("tty&tty", "OptionRepeated"),
            ("stdin=1&tty=1&stdin=1", "OptionRepeated"),
            ("container=a&container=a", "OptionRepeated"),
            ("container=&container=a", "OptionRepeated"),
            ("ports=80&ports=81", "OptionRepeated"),
            ("TTY=true", "OptionUnknown"),
            ("user=root", "OptionUnknown"),
            ("%74ty=true", "QueryMalformed"),
            ("t+ty=true", "QueryMalformed"),
            ("=true", "QueryMalformed"),
            ("tty=%7", "QueryMalformed"),
            ("tty=%zz", "QueryMalformed"),
            ("tty=%+1", "QueryMalformed"),
            ("tty=true;stdin=true", "QueryMalformed"),
            ("command=%ff", "QueryMalformed"),
            ("container=..", "ContainerMalformed"),
            ("container=a%2fb", "ContainerMalformed"),
            ("ports=", "OptionMalformed"),
            ("ports=80,", "OptionMalformed"),
            ("ports=65536", "OptionMalformed"),
            ("tailLines=ten", "OptionMalformed"),
            ("tailLines=", "OptionMalformed"),
        ] {
            assert_eq!(read(query), Err(reason), "{query}");
        }
        let long = format!("command={}", "a".repeat(MAX_QUERY));
        assert_eq!(read(&long), Err("QueryTooLong"));
        // Short as received, and three times as long when forwarded.
        let grows = format!("command={}", "/".repeat(MAX_QUERY / 2));
        assert_eq!(read(&grows), Err("QueryTooLong"));
    }

    #[test]
    fn query_is_rewritten_from_parsed_options() {
        for (query, sent) in [
            ("command=a%20b&command=c%3Bd", "command=a+b&command=c%3Bd"),
            (
                "command=a+b&command=&&command",
                "command=a+b&command=&command=",
            ),
            ("command=/bin/sh&tty", "command=%2Fbin%2Fsh&tty=true"),
            ("tty=OFF&command=%E2%82%AC", "tty=true&command=%E2%82%AC"),
            ("container=&tty=0", "container=&tty=false"),
            ("ports=80,0443&tailLines=%2B5", "ports=80,443&tailLines=5"),
            ("", ""),
        ] {
            let query_sent = read(query).unwrap().to_query();
            assert_eq!(query_sent.replace("%2C", ","), sent, "{query}");
        }
        let options = read("command=sh&tty&command=-c&command=a+b").unwrap();
        assert_eq!(options.command(), ["sh", "-c", "a b"]);
        assert_eq!(read("container=").unwrap().container(), None);
        assert_eq!(read("container=app").unwrap().container(), Some("app"));
    }

    /// Returns the first value of an option, as Go reads a query: Go omits pairs that it cannot read.
    fn first_by_go(query: &str, wanted: &str) -> Option<Vec<u8>> {
        let mut pairs = query.split('&').filter(|pair| !pair.is_empty());
        pairs.find_map(|pair| {
            if pair.contains(';') {
                return None;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = unescape_by_go(name)?;
            let value = unescape_by_go(value)?;
            (name == wanted.as_bytes()).then_some(value)
        })
    }

    fn unescape_by_go(text: &str) -> Option<Vec<u8>> {
        let mut bytes = text.bytes();
        let mut all = Vec::new();
        while let Some(byte) = bytes.next() {
            all.push(match byte {
                b'+' => b' ',
                b'%' => {
                    let digits = [bytes.next()?, bytes.next()?];
                    let digit = |byte: u8| char::from(byte).to_digit(16);
                    let value = digit(digits[0])? * 16 + digit(digits[1])?;
                    u8::try_from(value).ok()?
                }
                other => other,
            });
        }
        Some(all)
    }

    fn flag_by_go(query: &str, wanted: &str) -> bool {
        first_by_go(query, wanted).is_some_and(|value| {
            let value = String::from_utf8_lossy(&value).to_lowercase();
            value != "false" && value != "0"
        })
    }

    /// Generates one option in some spelling.
    fn spelling() -> impl Strategy<Value = String> {
        let name = prop_oneof![
            4 => Just("tty".to_owned()),
            2 => Just("stdin".to_owned()),
            1 => Just("command".to_owned()),
            1 => Just("%74ty".to_owned()),
            1 => Just("TTY".to_owned()),
            1 => "[a-z%+;=]{0,4}",
        ];
        let value = prop_oneof![
            4 => "=(true|True|TRUE|1|t|yes|false|False|FALSE|0|f|no|%74rue|%66alse|%30|)",
            2 => Just(String::new()),
            2 => "=[a-zA-Z0-9%+;=&]{0,6}",
        ];
        (name, value).prop_map(|(name, value)| format!("{name}{value}"))
    }

    proptest! {
        #[test]
        fn query_is_refused_or_read_as_the_api_server_reads_it(
            spellings in prop::collection::vec(spelling(), 0..5),
        ) {
            let query = spellings.join("&");
            if let Ok(options) = read(&query) {
                let sent = options.to_query();
                for query in [&query, &sent] {
                    prop_assert_eq!(options.tty(), flag_by_go(query, "tty"), "{}", query);
                    prop_assert_eq!(options.stdin(), flag_by_go(query, "stdin"), "{}", query);
                }
                prop_assert_eq!(read(&sent), Ok(options));
            }
        }
    }
}
