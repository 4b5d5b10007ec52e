mod bounds;
mod chain;
mod flood;
mod redaction;
mod support;
mod tampering;
