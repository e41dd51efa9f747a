#!/bin/sh
# Puts the four files of Fashion-MNIST (60,000 training and 10,000 test images, gzipped idx) into
# target/datasets/fashion-mnist and prints that folder. They come from Debian's package
# dataset-fashion-mnist: where it is installed, from there; else apt fetches the package (31 MB)
# and only its files are taken out. The images are checked, so that figures always speak of the
# same ones.
#
# Example:  model-split/measure/fashion.sh
set -eu
cd "$(dirname "$0")/../.."
package=dataset-fashion-mnist
inside=usr/share/datasets/fashion-mnist
out=target/datasets/fashion-mnist

# SHA-256 of the unpacked files.
sums='5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b  t10k-images-idx3-ubyte
0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34  t10k-labels-idx1-ubyte
c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888  train-images-idx3-ubyte
bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9  train-labels-idx1-ubyte'

whole() {
    echo "$sums" | while read -r sum name; do
        test -f "$1/$name.gz" || return 1
        test "$(gzip -dc "$1/$name.gz" | sha256sum)" = "$sum  -" || return 1
    done
}

if ! whole "$out"; then
    mkdir -p "$(dirname "$out")"
    scratch=$(mktemp -d "$out.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    if whole "/$inside"; then
        mkdir -p "$scratch/$inside"
        cp "/$inside"/*.gz "$scratch/$inside"
    else
        # Standard output is for the folder alone.
        (cd "$scratch" && apt-get download "$package" && dpkg -x "$package"_*.deb .) >&2
    fi
    whole "$scratch/$inside" || {
        echo "fashion.sh: the files of $package are not the ones that were measured on" >&2
        exit 1
    }
    rm -rf "$out"
    mv "$scratch/$inside" "$out"
fi
echo "$out"
