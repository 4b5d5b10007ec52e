# Clones one repository into a workspace, or writes, last, what was cloned. Whatever it was killed between, starting it
# again does the rest; and once the list is there it does nothing any more.
set -eu
umask 007

own="$OZ_WORKSPACE/.paddock"
if [ -e "$own/repos.json" ]; then exit 0; fi
mkdir -p "$own/seed"

if [ -n "${OZ_MANIFEST-}" ]; then
  printf '%s\n' "$OZ_MANIFEST" > "$own/seed/repos.json"
  mv "$own/seed/repos.json" "$own/repos.json"
  rm -rf "$own/seed"
  exit 0
fi

fail() {
  echo "$1" >&2
  exit 1
}

if [ -n "${OZ_CREDENTIALS-}" ]; then
  export OZ_CREDENTIALS
  if [ -e "$OZ_CREDENTIALS/ca.crt" ]; then export GIT_SSL_CAINFO="$OZ_CREDENTIALS/ca.crt"; fi
  printf '%s\n' '#!/bin/sh' \
    'case "$1" in Username*) cat "$OZ_CREDENTIALS/username" ;; *) cat "$OZ_CREDENTIALS/password" ;; esac' \
    > "$HOME/askpass"
  chmod 700 "$HOME/askpass"
  export GIT_ASKPASS="$HOME/askpass"
  hosts="-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=$HOME/known_hosts"
  if [ -e "$OZ_CREDENTIALS/known_hosts" ]; then
    hosts="-o StrictHostKeyChecking=yes -o UserKnownHostsFile=$OZ_CREDENTIALS/known_hosts"
  fi
  export GIT_SSH_COMMAND="ssh -F /dev/null -i $OZ_CREDENTIALS/ssh-privatekey -o IdentitiesOnly=yes -o BatchMode=yes $hosts"
fi

work="$own/seed/$OZ_NUMBER"
if [ ! -e "$work/cloned" ]; then
  rm -rf "$work"
  mkdir "$work"
  set --
  if [ "$OZ_DEPTH" -gt 0 ]; then set -- --depth "$OZ_DEPTH"; fi
  if [ -n "$OZ_BRANCH" ]; then set -- "$@" --branch "$OZ_BRANCH" --single-branch; fi
  git -c http.followRedirects=false -c core.hooksPath=/dev/null \
    clone --no-recurse-submodules "$@" -- "$OZ_URL" "$work/tree"
  : > "$work/cloned"
fi

if [ ! -e "$work/tree" ]; then exit 0; fi
if [ -n "$OZ_PATH" ]; then
  target="$OZ_WORKSPACE/$OZ_PATH"
  if [ -e "$target" ] || [ -L "$target" ]; then fail "$OZ_PATH is in the workspace already"; fi
  mkdir -p "$(dirname "$target")"
  mv "$work/tree" "$target"
  exit 0
fi
for name in .paddock .home; do
  if [ -e "$work/tree/$name" ] || [ -L "$work/tree/$name" ]; then
    fail "the repository has $name at its top, which is the workspace's own: give the repository a path"
  fi
done
for entry in "$work/tree"/* "$work/tree"/.[!.]* "$work/tree"/..?*; do
  if [ ! -e "$entry" ] && [ ! -L "$entry" ]; then continue; fi
  name="${entry##*/}"
  if [ -e "$OZ_WORKSPACE/$name" ] || [ -L "$OZ_WORKSPACE/$name" ]; then
    fail "$name is in the workspace already"
  fi
  mv "$entry" "$OZ_WORKSPACE/"
done
rmdir "$work/tree"
