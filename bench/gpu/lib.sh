# SPDX-License-Identifier: Apache-2.0
# What the programs of the bundle share: the bundle unpacked into $b, libraries found, arguments.
# shellcheck shell=bash disable=SC2034
here=$(cd "$(dirname "$0")" && pwd)
b=$(mktemp -d)
trap 'rm -rf "$b"' EXIT
tar xJf "$here/bundle.tar.xz" -C "$b" || exit 1
export LD_LIBRARY_PATH=$b/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
logs=${OUT:-$here/logs}
mkdir -p "$logs"
# PyTorch brings cuBLASLt and cuDNN where the toolkit is not installed.
if [ -z "${TANDEM_CUDA_LIBS:-}" ]; then
    found=$(python3 -c 'import nvidia, os
print(":".join(d for p in nvidia.__path__ for d, _, names in os.walk(p)
    if any(n.startswith(("libcublasLt.so.1", "libcudnn.so.9", "libnccl.so.2"))
        for n in names)))' 2>/dev/null)
    [ -z "$found" ] || export TANDEM_CUDA_LIBS=$found
fi
only= peer=1 profile=0 rest=()
while [ $# -gt 0 ]; do
    case $1 in
    --only) only=${2:?--only needs a name}; shift ;;
    --only=*) only=${1#*=} ;;
    --no-peer) peer=0 ;;
    --profile) profile=1 ;;
    -*) echo "unknown argument $1" >&2; exit 2 ;;
    *) rest+=("$1") ;;
    esac
    shift
done
wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }
