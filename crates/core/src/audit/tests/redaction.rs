//! What of a command line is kept.

use crate::audit::arguments;

fn kept(line: &[&str], record: bool) -> String {
    let argv: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
    arguments(&argv, record).join(" ")
}

#[test]
fn by_default_only_the_program_is_kept() {
    assert_eq!(
        kept(&["psql", "-c", "select 1"], false),
        "psql (2 arguments)"
    );
    assert_eq!(kept(&["sh"], false), "sh");
    assert_eq!(kept(&[], false), "");
}

#[test]
fn what_looks_like_a_secret_is_masked() {
    for (line, expected) in [
        (&["ls", "-l", "/var/log"][..], "ls -l /var/log"),
        (&["mysql", "-phunter2", "-uroot"], "mysql -p*** -uroot"),
        (&["ssh", "-p", "22"], "ssh -p 22"),
        (&["ssh", "-p22"], "ssh -p22"),
        (&["x", "--password", "hunter2", "y"], "x --password *** y"),
        (&["x", "--password=hunter2"], "x --password=***"),
        (
            &["env", "DB_PASSWORD=hunter2", "app"],
            "env DB_PASSWORD=*** app",
        ),
        (&["curl", "-u", "me:pw", "http://x"], "curl -u *** http://x"),
        (
            &["curl", "https://me:pw@host/p?q=a@b"],
            "curl https://me:***@host/p?q=a@b",
        ),
        (&["curl", "-H", "Authorization: Bearer abc"], "curl -H ***"),
        (
            &["sh", "-c", "export TOKEN=abc; run --secret s3 now"],
            "sh -c export TOKEN=*** run --secret *** now",
        ),
        (&["x", "eyJhbGciOiJIUzI1NiJ9.e30.x"], "x ***"),
        (&["x", "ghp_0123456789"], "x ***"),
    ] {
        assert_eq!(kept(line, true), expected, "{line:?}");
    }
}

#[test]
fn a_long_command_line_is_cut() {
    let long = "é".repeat(1_000);
    let line = kept(&["x", &long], true);
    assert!(line.len() < 300, "{}", line.len());
    let many: Vec<&str> = std::iter::repeat_n("x", 1_000).collect();
    assert!(kept(&many, true).ends_with("(and 935 more)"));
}
