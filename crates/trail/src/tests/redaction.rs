//! Tests of the redaction of command lines.

use crate::arguments;

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
    assert_eq!(kept(&["mysql -phunter2"], false), "mysql");
    assert_eq!(kept(&["psql\t-c\nx", "y"], false), "psql (1 argument)");
    assert_eq!(kept(&["TOKEN=hunter2"], false), "TOKEN=***");
    assert_eq!(kept(&[], false), "");
}

#[test]
fn secret_arguments_are_masked() {
    for (line, expected) in [
        (&["ls", "-l", "/var/log"][..], "ls -l /var/log"),
        (&["mysql", "-phunter2", "-uroot"], "mysql -p*** -u***"),
        // A number cannot be recognised as a port.
        (&["ssh", "-p", "22"], "ssh -p ***"),
        (&["ssh", "-p22"], "ssh -p***"),
        (
            &["redis-cli", "-a", "hunter2", "get", "x"],
            "redis-cli -a *** get x",
        ),
        (
            &["sshpass", "-p", "hunter2", "ssh", "h"],
            "sshpass *** *** ssh h",
        ),
        (&["curl", "-uuser:hunter2", "h"], "curl -u*** h"),
        (
            &["kubectl", "--from-literal=password=hunter2", "x"],
            "kubectl --from-literal=password=*** x",
        ),
        (
            &[
                "aws",
                "configure",
                "set",
                "aws_secret_access_key",
                "hunter2",
            ],
            "aws configure set aws_secret_access_key ***",
        ),
        (
            &[
                "curl",
                "-d",
                r#"{"user":"me","password":"hunter2 b","c":1}"#,
            ],
            r#"curl -d {"user":"me","password":***,"c":1}"#,
        ),
        (
            &["curl", "https://h/?a=1&token=hunter2&b=2"],
            "curl https://h/?a=1&token=***",
        ),
        (&["curl", "https://ghp_0123@h/x"], "curl https://***"),
        (
            &["git", "clone", "https://hunter2@h/x"],
            "git clone https://***@h/x",
        ),
        (&["java", "-password", "hunter2", "x"], "java -p*** *** x"),
        (
            &["sh", "-c", "a\n\tPASSWORD='hunter2 b' c"],
            "sh -c a PASSWORD=*** c",
        ),
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
fn no_way_to_give_a_password_is_kept() {
    for script in [
        "redis-cli -a @",
        "sshpass -p @ ssh host",
        "sshpass -p@ ssh host",
        "mysql -u root -p@ db",
        "curl -uuser:@ https://h",
        "curl -u user:@ https://h",
        "curl --user user:@ https://h",
        "curl -H 'Authorization: Basic @' https://h",
        "curl -H \"X-Api-Key: @\" https://h",
        "curl -b session=@ https://h",
        "curl https://user:@@h/x",
        "curl https://h/?a=1&token=@",
        "curl -d '{\"password\":\"@\"}' h",
        "curl -d '{ \"auth\": { \"password\": \"a @\" } }' h",
        "curl -d {\\\"password\\\":\\\"a @\\\"} h",
        "kubectl create secret generic x --from-literal=password=@",
        "aws configure set aws_secret_access_key @",
        "env A=1 DB_PASSWORD=@ app",
        "env DB_PASSWORD=\"a @ b\" app",
        "export TOKEN=a;b,@&c",
        "app --db-password @",
        "app --db-password='a @'",
        "app\t--secret\n@",
        "openssl x -passin pass:@",
        "docker login -u me -p @",
        "smbclient -U me%@ //h/x",
        "ldapsearch -D cn=me -w@",
        "psql postgres://me:@@h1/db,postgres://me:@@h2/db",
        "psql host=h user=me password=@",
        "helm install --set a=b,auth.password=@,c=d",
        "http h Authorization:@",
        "x eyJ@ y=ghp_@ z,glpat-@",
    ] {
        let script = script
            .replace('@', "hunter2")
            .replace("hunter2hunter2", "hunter2@");
        let words: Vec<&str> = script.split_whitespace().collect();
        // A quoted text is one word, as for a shell.
        let words = if script.contains(['"', '\'']) {
            &words[..1]
        } else {
            &words
        };
        for line in [&["sh", "-c", &script][..], words] {
            let kept = kept(line, true);
            assert!(!kept.contains("hunter2"), "{line:?}: {kept}");
        }
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
