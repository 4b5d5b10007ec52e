//! The script that ends every process of a grant in a container, run by the operator when a grant
//! ends. It needs a shell and `/proc`, and writes nothing to disk.
//!
//! A process belongs to the grant if it was started with the grant's mark in its environment; if
//! its parent or the leader of its session does; or if it shares a pipe or terminal, as standard
//! stream, with the process that the session began with. What drops its environment, session,
//! parents and streams cannot be told from the application.

use super::cut::MARK;

/// The script; `$1` is the grant's id. Writes `ended N left M`.
///
/// Never touched: PID 1 and what began outside of the container (parent 0) without the mark, which
/// are the application and the sessions of others; and whatever this script itself runs under.
const SCRIPT: &str = r#"
mark="@MARK@=$1"
zgrep=
echo x | grep -qzx x 2>/dev/null && zgrep=1
stat() {
  IFS= read -r line < "/proc/$1/stat" || return 1
  line=${line##*) }
  set -- $line
  state=$1 parent=$2 session=$4
} 2>/dev/null
carries() {
  while IFS= read -r line || [ "$line" ]; do
    case $line in *"$mark"*) return 0;; esac
  done < "/proc/$1/environ"
  return 1
} 2>/dev/null
has() { case " $1 " in *" $2 "*) return 0;; esac; return 1; }
shares() {
  for one in 0 1 2; do
    a=/proc/$1/fd/$one
    [ -p "$a" ] || { [ -c "$a" ] && ! [ "$a" -ef /dev/null ] && ! [ "$a" -ef /dev/zero ]; } || continue
    for other in $2; do
      for two in 0 1 2; do
        [ "$a" -ef "/proc/$other/fd/$two" ] && return 0
      done
    done
  done
  return 1
} 2>/dev/null
own=1 at=$$ safe="0 1"
while [ "$at" -gt 1 ] && stat "$at"; do
  safe="$safe $session" own="$own $at" at=$parent
done
ended=0 round=0 killed= marked=
while [ $round -lt 8 ]; do
  round=$((round + 1)) marked= roots= theirs= table= sessions= carriers=
  if [ "$zgrep" ]; then
    for entry in $(cd /proc && grep -lzx "$mark" [0-9]*/environ 2>/dev/null); do
      carriers="$carriers ${entry%%/*}"
    done
  fi
  for entry in /proc/[0-9]*; do
    pid=${entry#/proc/}
    has "$own" "$pid" && continue
    stat "$pid" || continue
    [ "$state" = Z ] && continue
    [ "$parent" = $$ ] && continue
    if if [ "$zgrep" ]; then has "$carriers" "$pid"; else carries "$pid"; fi; then
      marked="$marked $pid"
      sessions="$sessions $session"
    elif [ "$parent" = 0 ]; then
      theirs="$theirs $pid" safe="$safe $session"
      continue
    fi
    table="$table $pid:$parent:$session"
  done
  [ "$marked" ] || break
  for entry in $table; do
    pid=${entry%%:*} parent=${entry#*:}
    has "$marked" "$pid" && ! has "$marked" "${parent%%:*}" && roots="$roots $pid"
  done
  added=1
  while [ $added = 1 ]; do
    added=0
    for entry in $table; do
      pid=${entry%%:*} rest=${entry#*:}
      parent=${rest%%:*} session=${rest#*:}
      has "$marked" "$pid" && continue
      if has "$marked" "$parent" ||
        { has "$sessions" "$session" && ! has "$safe" "$session"; } ||
        { shares "$pid" "$roots" && ! shares "$pid" "1 $theirs"; }; then
        marked="$marked $pid" added=1
      fi
    done
  done
  # First nobody runs on, so that nobody starts anything behind our back.
  kill -STOP $marked 2>/dev/null
  [ $round = 1 ] && continue
  for pid in $marked; do
    kill -KILL "$pid" 2>/dev/null || continue
    has "$killed" "$pid" || killed="$killed $pid" ended=$((ended + 1))
  done
done
left=1 looks=0
# What was killed takes a moment to be gone, more of it where the node is busy. A shell that has no
# sleep of its own passes the time by starting nothing.
while [ $looks -lt 1000 ]; do
  left=0 looks=$((looks + 1))
  for pid in $marked; do stat "$pid" && [ "$state" != Z ] && left=$((left + 1)); done
  [ $left -gt 0 ] || break
  (:)
done
echo "ended $ended left $left"
"#;

/// The command that ends the processes of the grant with this id.
#[must_use]
pub fn command(grant: &str) -> Vec<String> {
    vec![
        "/bin/sh".to_owned(),
        "-c".to_owned(),
        SCRIPT.replace("@MARK@", MARK),
        "oz".to_owned(),
        grant.to_owned(),
    ]
}

/// What the script did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// How many processes were ended.
    pub ended: u32,
    /// How many could not be.
    pub left: u32,
}

/// What the script's answer says; `None` if it did not get to its end.
#[must_use]
pub fn answer(text: &str) -> Option<Ended> {
    let line = text.lines().rfind(|line| line.starts_with("ended "))?;
    let mut words = line.split_whitespace();
    let (_, ended, _, left) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(Ended {
        ended: ended.parse().ok()?,
        left: left.parse().ok()?,
    })
}
