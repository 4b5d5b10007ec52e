//! The functions of this crate.

use regorus::Value;

use super::operand::{Answer, Failure, failed};
use super::{
    aws, cidr, collections, crypto, globs, regexes, rego_tree, schema, semver, sprintf, strings,
    template, time, units, uri, uuid, yaml, yaml_text,
};

/// A function of this crate.
pub(super) struct Own {
    pub(super) name: &'static str,
    pub(super) arity: u8,
    pub(super) call: fn(&[Value]) -> Answer,
    /// True if OPA supports it only in the language before 1.0.
    pub(super) only_v0: bool,
}

const fn own(name: &'static str, arity: u8, call: fn(&[Value]) -> Answer) -> Own {
    Own {
        name,
        arity,
        call,
        only_v0: false,
    }
}

const fn old(name: &'static str, arity: u8, call: fn(&[Value]) -> Answer) -> Own {
    Own {
        name,
        arity,
        call,
        only_v0: true,
    }
}

/// The functions that replace the interpreter's, and those that it does not have.
pub(super) const OWN: &[Own] = &[
    own("array.concat", 2, collections::concat),
    own("array.flatten", 1, collections::flatten),
    own("crypto.hmac.equal", 2, crypto::hmac_equal),
    own("crypto.hmac.md5", 2, crypto::hmac_md5),
    own("crypto.hmac.sha1", 2, crypto::hmac_sha1),
    own("crypto.hmac.sha256", 2, crypto::hmac_sha256),
    own("crypto.hmac.sha512", 2, crypto::hmac_sha512),
    own("crypto.md5", 1, crypto::md5),
    own("crypto.sha1", 1, crypto::sha1),
    own("crypto.sha256", 1, crypto::sha256),
    own("glob.match", 3, globs::is_match),
    own("glob.quote_meta", 1, globs::quote_meta),
    own("json.is_valid", 1, collections::is_json),
    own("json.match_schema", 2, schema::matches),
    own("json.verify_schema", 1, schema::verify),
    own("lower", 1, strings::lower),
    own("net.cidr_contains", 2, cidr::contains),
    own("net.cidr_contains_matches", 2, cidr::contains_matches),
    own("net.cidr_intersects", 2, cidr::intersects),
    own("net.cidr_merge", 1, cidr::merge),
    own("numbers.range_step", 3, collections::range_step),
    own("object.subset", 2, collections::subset),
    own("providers.aws.sign_req", 3, aws::sign),
    own("regex.find_all_string_submatch_n", 3, regexes::find_all),
    own("regex.find_n", 3, regexes::find_n),
    own("regex.globs_match", 2, globs::globs_match),
    own("regex.is_valid", 1, regexes::is_valid),
    own("regex.match", 2, regexes::is_match),
    own("regex.replace", 3, regexes::replace),
    own("regex.split", 2, regexes::split),
    own("regex.template_match", 4, regexes::template_match),
    own("rego.metadata.chain", 0, metadata_outside_of_rule),
    own("rego.metadata.rule", 0, metadata_outside_of_rule),
    own("rego.parse_module", 2, rego_tree::parse_module),
    own("semver.compare", 2, semver::compare),
    own("semver.is_valid", 1, semver::is_valid),
    own("sprintf", 2, sprintf::sprintf),
    own("strings.count", 2, strings::count),
    own("strings.render_template", 2, template::render),
    own("strings.replace_n", 2, strings::replace_many),
    own("strings.split_n", 3, strings::split_some),
    own("time.add_date", 4, time::add_date),
    own("time.format", 1, time::format),
    own("time.parse_duration_ns", 1, time::parse_duration),
    own("time.parse_ns", 2, time::parse_ns),
    own("time.parse_rfc3339_ns", 1, time::parse_rfc3339),
    own("units.parse", 1, units::parse),
    own("units.parse_bytes", 1, units::parse_bytes),
    own("upper", 1, strings::upper),
    own("uri.is_valid", 1, uri::is_valid),
    own("uri.parse", 1, uri::parse),
    own("uuid.parse", 1, uuid::parse),
    own("yaml.is_valid", 1, yaml::is_valid),
    own("yaml.marshal", 1, yaml_text::marshal),
    own("yaml.unmarshal", 1, yaml::unmarshal),
    old("all", 1, collections::all),
    old("any", 1, collections::any),
    old("cast_array", 1, collections::cast_array),
    old("cast_boolean", 1, |values| {
        collections::cast_same(values, "boolean")
    }),
    old("cast_null", 1, |values| {
        collections::cast_same(values, "null")
    }),
    old("cast_object", 1, |values| {
        collections::cast_same(values, "object")
    }),
    old("cast_set", 1, collections::cast_set),
    old("cast_string", 1, |values| {
        collections::cast_same(values, "string")
    }),
    old("net.cidr_overlap", 2, cidr::contains),
    old("re_match", 2, regexes::is_match),
    old("set_diff", 2, collections::set_diff),
];

/// Implements `rego.metadata.*` where no call has become its value.
fn metadata_outside_of_rule(_: &[Value]) -> Answer {
    failed("the function must only be called within the scope of a rule")
}

/// A check of the operands of the interpreter's function.
pub(super) type Check = fn(&[Value]) -> Result<(), Failure>;

/// The functions of the interpreter that accept more than OPA's.
pub(super) const CHECKED: &[(&str, Check)] = &[
    ("bits.lsh", collections::check_shift),
    ("bits.rsh", collections::check_shift),
    ("json.marshal_with_options", collections::check_options),
    ("net.cidr_expand", cidr::check_network),
    ("object.union", collections::check_objects),
    ("to_number", collections::check_number),
];
