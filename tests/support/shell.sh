# The shell side of tests/support/test.h, for POSIX sh:
#
#     . "$TREADLE_SOURCE/tests/support/shell.sh"
#     run "$TREADLE" ops                      # sets $code, $out (standard output) and $err (standard error)
#     check 'ops exits 0' [ "$code" = 0 ]
#     check 'Add is listed' has "$out" 'Add'
#     finish
#
# $temp is a folder that goes away with the test. shared PATH and model PATH print a path, or skip or fail as test.h says:
#     data=$(shared pipelines.tar.xz) || exit $?

n_passed=0
n_failed=0
temp=$(mktemp -d "${TMPDIR:-/tmp}/treadle-test-XXXXXX") || exit 1
trap 'rm -rf "$temp"' EXIT

check() { # check TEXT command...
    check_text=$1
    shift
    if "$@" >/dev/null; then
        n_passed=$((n_passed + 1))
    else
        n_failed=$((n_failed + 1))
        printf 'does not hold: %s (%s)\n' "$check_text" "$*"
        [ -z "${err:-}" ] || printf '%s\n' "$err" | head -n 20 | sed 's/^/    stderr: /'
    fi
}

run() {
    code=0
    "$@" >"$temp/.out" 2>"$temp/.err" </dev/null || code=$?
    out=$(cat "$temp/.out")
    err=$(cat "$temp/.err")
}

has() { # has WHOLE PART
    case $1 in *"$2"*) return 0 ;; esac
    return 1
}

skip() {
    echo "SKIP: $*"
    exit 77
}

shared() {
    if [ -z "${TREADLE_SHARED:-}" ]; then
        echo "SKIP: TREADLE_SHARED is not set ($1)" >&2
        return 77
    fi
    if [ ! -e "$TREADLE_SHARED/$1" ]; then
        echo "$TREADLE_SHARED/$1: not found, though TREADLE_SHARED is set" >&2
        return 1
    fi
    printf '%s\n' "$TREADLE_SHARED/$1"
}

model() {
    model_path=${TREADLE_MODELS:-$TREADLE_SOURCE/models}/$1
    if [ ! -e "$model_path" ]; then
        if [ -n "${CI:-}" ] || [ -n "${TREADLE_SHARED:-}" ]; then
            echo "$model_path: not found; make models gets it" >&2
            return 1
        fi
        echo "SKIP: $model_path is not fetched" >&2
        return 77
    fi
    printf '%s\n' "$model_path"
}

finish() {
    echo "$n_passed passed, $n_failed failed, 0 skipped"
    [ "$n_failed" = 0 ] || exit 1
    exit 0
}
