mod bounds;
mod chain;
mod flood;
mod redaction;
mod shortening;
mod support;
mod tampering;
mod writers;
