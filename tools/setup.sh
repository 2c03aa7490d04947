#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs, with apt-get, those Debian packages of the named groups that are missing. Where nothing is missing it does
# nothing at all, so it may be run before every build. Usage: tools/setup.sh GROUP... (build, test, lint, bench, fuzz, proof)
set -eu

build="g++ make cmake ninja-build ccache python3 libfmt-dev libhwy-dev libcli11-dev nlohmann-json3-dev"
proof="g++ make python3 spin"
test="$build libgtest-dev libgmock-dev librapidcheck-dev clang spin"
lint="$test clang-format clang-tidy"
bench="$build libbenchmark-dev libdnnl-dev"
fuzz="$build clang libclang-rt-dev"

packages=""
for group in "${@:-build}"; do
  case "$group" in
    build) packages="$packages $build" ;;
    test) packages="$packages $test" ;;
    lint) packages="$packages $lint" ;;
    bench) packages="$packages $bench" ;;
    fuzz) packages="$packages $fuzz" ;;
    proof) packages="$packages $proof" ;;
    *)
      echo "tools/setup.sh: group '$group': accepted is build, test, lint, bench, fuzz, proof" >&2
      exit 2
      ;;
  esac
done

# The command that makes a package unnecessary, for tools that may have come from elsewhere.
command_of() {
  case "$1" in
    g++ | make | cmake | ccache | python3 | clang-format | clang-tidy | spin) echo "$1" ;;
    clang) echo clang++ ;;
    ninja-build) echo ninja ;;
  esac
}

is_present() {
  wanted=$(command_of "$1")
  if [ -n "$wanted" ] && command -v "$wanted" >/dev/null 2>&1; then
    return 0
  fi
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

have_dpkg=yes
command -v dpkg-query >/dev/null 2>&1 || have_dpkg=no
missing=""
for package in $packages; do
  case " $missing " in *" $package "*) continue ;; esac
  if [ $have_dpkg = no ] && [ -z "$(command_of "$package")" ]; then
    continue # a library on a system without dpkg: CMake finds it or says which one it misses
  fi
  is_present "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
  echo "tools/setup.sh: no apt-get here. Install what these Debian packages hold, then run again:$missing" >&2
  exit 1
fi
as_root=""
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "tools/setup.sh: neither root nor sudo. Have these Debian packages installed, then run again:$missing" >&2
    exit 1
  fi
  as_root="sudo"
  [ -t 0 ] || as_root="sudo -n" # nobody is there to type a password
fi

echo "installing:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" \
    </dev/null >>"$log" 2>&1
}
# The lists may be usable even if they cannot be renewed, so only the installation decides.
apt update || true
# shellcheck disable=SC2086  # a list of names, one argument each
if ! apt install -y --no-install-recommends $missing; then
  cat "$log" >&2
  echo "tools/setup.sh: apt-get failed (see above). These packages are needed:$missing" >&2
  exit 1
fi
