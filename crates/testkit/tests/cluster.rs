//! The embedded cluster keeps its promises.
#![expect(clippy::unwrap_used, reason = "tests")]

use oz_testkit::Cluster;

#[tokio::test]
async fn starts() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let out = cluster
        .kubectl("admin")
        .args(["get", "nodes,pods,sa", "-A"])
        .output()?;
    eprintln!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    let out = cluster.kubectl("alice").args(["auth", "whoami"]).output()?;
    eprintln!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    for (k, v) in cluster.audit().entries()?.counts() {
        eprintln!("{v:5} {k:?}");
    }
    if let Some(s) = std::env::var("SLEEP").ok() {
        tokio::time::sleep(std::time::Duration::from_secs(s.parse().unwrap())).await;
    }
    Ok(())
}
