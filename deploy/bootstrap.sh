# Sourced by deploy/dev, tests/run and .ci/run: a Python environment with what the lock names, made or brought up to date.
# For bash 3.2 and later (macOS). Every function ends the script, with a message, where it cannot do its work.

say() { echo "${0#./}: $*" >&2; }

fail() {
    say "$@"
    exit 1
}

# What is set for another project, or by a shell's start-up file, must not steer ours.
clean_environment() {
    unset PYTHONHOME PYTHONPATH PYTHONSTARTUP PYTHONWARNINGS VIRTUAL_ENV PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
}

is_root_on_debian() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_update() { apt-get update -qq >/dev/null; }

# Usage: apt_install PACKAGE... Wants apt_update before it.
apt_install() {
    say "installing $* with apt-get"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# Prints a Python of at least 3.11: $PYTHON where it is set, else the first that is found.
find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not Python 3.11 or later"
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "Python 3.11 or later is needed; install it, or name it in PYTHON"
}

# Usage: make_venv DIRECTORY PYTHON. Leaves one that works alone.
make_venv() {
    local venv=$1 python=$2 version
    if [ -x "$venv/bin/python" ] && is_new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        # Scripts in it name their interpreter by its full path: one that was moved or copied does not work.
        if ! [ -f "$venv/.kvfold-place" ] || [ "$(cat "$venv/.kvfold-place")" = "$PWD/$venv" ]; then
            echo "$PWD/$venv" >"$venv/.kvfold-place"
            return
        fi
    fi
    rm -rf "$venv"
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        is_root_on_debian || fail "$python has no ensurepip: install it (Debian, Ubuntu: apt-get install python$version-venv)"
        apt_update
        apt_install "python$version-venv"
    fi
    say "making $venv with $("$python" --version)"
    "$python" -m venv "$venv"
    echo "$PWD/$venv" >"$venv/.kvfold-place"
}

# Usage: install_project DIRECTORY tests|run. Does nothing while lock and pyproject.toml are as they were.
install_project() {
    local venv=$1 purpose=$2 digest stamp
    stamp=$venv/.kvfold-installed
    digest=$("$venv/bin/python" -c 'import hashlib, sys
print(hashlib.sha256(b"\0".join(open(name, "rb").read() for name in sys.argv[1:])).hexdigest())' \
        tests/requirements.lock pyproject.toml)
    # The tests' environment holds all that running needs.
    if [ -f "$stamp" ] && grep -qx -e "tests $digest" -e "$purpose $digest" "$stamp"; then
        return
    fi
    say "installing into $venv; this takes a minute the first time"
    rm -f "$stamp"
    if [ "$purpose" = tests ]; then
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r tests/requirements.lock
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -e .
    else
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c tests/requirements.lock -e '.[embedded]'
    fi
    echo "$purpose $digest" >"$stamp"
}
