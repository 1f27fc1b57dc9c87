# Sourced by ./trireme and ./test: makes sure that packages, Python environments and the build are there and current.
#
# Every stage is silent when there is nothing to do, prints one line with its seconds when there was, and keeps its
# whole output in <build>/setup.log, which is shown when the stage fails.
#
# TRIREME_BUILD   build folder, default build/<preset>
# TRIREME_VENV    Python environment with the torch wheel, default .venv (and <it>-test for what tests compare with)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${TRIREME_VENV:-$root/.venv}
preset=${preset:-release}
build=${TRIREME_BUILD:-$root/build}/$preset
setup_log=$build/setup.log

apt_packages=(build-essential cmake ninja-build pkg-config ccache mold python3-venv libcli11-dev libtomlplusplus-dev
  libspdlog-dev libfmt-dev nlohmann-json3-dev libgtest-dev libhwy-dev libpcre2-dev libzstd-dev zlib1g-dev
  libisal-dev libxxhash-dev)

die() { printf '%s\n' "$@" >&2; exit 1; }

# stage NAME COMMAND…: runs the command with its output in the log, and says how long it took.
stage() {
  local name=$1 start=$SECONDS; shift
  printf '%s … ' "$name" >&2
  if ! "$@" >"$setup_log" 2>&1 </dev/null; then
    printf 'failed\n' >&2
    tail -n 40 "$setup_log" >&2
    die "setup: '$name' failed; the whole output is in $setup_log"
  fi
  printf '%d s\n' $((SECONDS - start)) >&2
}

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${apt_packages[@]}" 2>/dev/null)
  for p in "${apt_packages[@]}"; do
    case $'\n'"$installed"$'\n' in *$'\n'"$p installed"$'\n'*) ;; *) echo "$p" ;; esac
  done
}

install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  "$@" apt-get update -qq && "$@" apt-get install -y -q --no-install-recommends "${missing[@]}"
}

setup_packages() {
  command -v dpkg-query >/dev/null || { setup_foreign; return; }
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -eq 0 ] && return
  local as=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as=(sudo -n env DEBIAN_FRONTEND=noninteractive)
    else die "setup: these Debian packages are missing and there are no rights to install them:" "  ${missing[*]}" \
             "next: sudo apt-get install ${missing[*]}"; fi
  fi
  stage "installing ${#missing[@]} Debian packages" install_packages "${as[@]}"
}

# Not Debian: we install nothing, and name what the build would stop at.
setup_foreign() {
  for tool in g++ cmake ninja pkg-config python3; do
    command -v "$tool" >/dev/null || die "setup: '$tool' is missing, and this is no Debian system whose packages we know"
  done
}

# make_venv DIR REQUIREMENTS [PARENT]: the environment is current when the copy of the requirements in it equals them. One
# that is there is brought up to date, and only one that does not work is made anew. With PARENT, the packages of that
# environment can be imported too, so that the torch wheel lies on the disk once.
make_venv() {
  local dir=$1 requirements=$2 parent=${3:-} python=/usr/bin/python3
  [ -x $python ] || python=python3
  if ! "$dir/bin/python" -m pip --version; then
    rm -rf "$dir" && $python -m venv "$dir" || return 1
  fi
  if [ -n "$parent" ]; then
    (cd "$parent"/lib/python3.*/site-packages && pwd) >"$(echo "$dir"/lib/python3.*/site-packages)/parent.pth"
  fi
  "$dir/bin/python" -m pip install -q -r "$requirements" && cp "$requirements" "$dir/requirements.txt"
}

setup_venv() {
  cmp -s "$root/tools/requirements.txt" "$venv/requirements.txt" ||
    stage "installing torch into ${venv##*/}" make_venv "$venv" "$root/tools/requirements.txt"
}

setup_test_venv() {
  cmp -s "$root/tools/requirements-test.txt" "$venv-test/requirements.txt" ||
    stage "installing the packages that tests compare with" \
      make_venv "$venv-test" "$root/tools/requirements-test.txt" "$venv"
}

configure() {
  cmake -S "$root" -B "$build" -G Ninja --preset "$preset" -DTRIREME_VENV="$venv"
}

# Nothing is newer than the last good build of these targets: then ninja need not even be asked.
build_is_current() {
  local stamp=$build/.built-$1
  [ -e "$stamp" ] || return 1
  [ -z "$(find "$root/src" "$root/CMakeLists.txt" "$root/CMakePresets.json" "$root/cmake" "$venv/requirements.txt" \
          -newer "$stamp" -print -quit)" ]
}

# setup_build TARGET [DESCRIPTION]
setup_build() {
  local target=$1
  exec 9>"$build/.lock" && flock 9   # two first commands at once: one builds, the other waits for it
  if ! build_is_current "$target"; then
    [ -e "$build/build.ninja" ] && [ ! "$root/CMakePresets.json" -nt "$build/build.ninja" ] ||
      stage "configuring" configure
    touch "$build/.building-$target"
    stage "building ${2:-$target} ($preset)" ninja -C "$build" "$target"
    mv "$build/.building-$target" "$build/.built-$target"
  fi
  exec 9>&-
}

mkdir -p "$build" || die "setup: cannot make the build folder $build" "next: set TRIREME_BUILD to a folder that can be written"
