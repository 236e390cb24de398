# mgmtproxy.sh: a POSIX shell library that puts commands behind the uplink proxy. Source it:
#
#     . /usr/share/isthmus/mgmtproxy.sh
#     mgmtproxy_run kubectl apply -f https://example.org/manifest.yaml
#
# Functions: mgmtproxy_enabled, mgmtproxy_no_proxy, mgmtproxy_run, mgmtproxy_wait_url, mgmtproxy_install.
# Settings, all optional, read at each call: MGMTPROXY_URL, MGMTPROXY_FLAG, MGMTPROXY_POD_CIDR, MGMTPROXY_SERVICE_CIDR.
# Log lines go to the function `logmsg` where the caller has one, else to stderr.

mgmtproxy_log() {
  if command -v logmsg >/dev/null 2>&1; then logmsg "$*"; else printf '%s\n' "$*" >&2; fi
}

# True unless the off-switch, a file of any kind, is there.
mgmtproxy_enabled() {
  [ ! -e "${MGMTPROXY_FLAG:-/run/kube/mgmtproxy-disable}" ] && [ ! -L "${MGMTPROXY_FLAG:-/run/kube/mgmtproxy-disable}" ]
}

# mgmtproxy_no_proxy [NODE_IP [PREFIX_LENGTH]]: prints what must not go through the proxy.
mgmtproxy_no_proxy() {
  _mgmtproxy_list="127.0.0.0/8,${MGMTPROXY_POD_CIDR:-10.42.0.0/16},${MGMTPROXY_SERVICE_CIDR:-10.43.0.0/16},169.254.0.0/16,localhost,.svc,.cluster.local"
  if [ -n "${1:-}" ]; then
    case "${2:-}" in
      '' | *[!0-9]* | 0) _mgmtproxy_list="$_mgmtproxy_list,$1" ;;
      *) _mgmtproxy_list="$_mgmtproxy_list,$1/$2" ;;
    esac
  fi
  printf '%s\n' "$_mgmtproxy_list"
  unset _mgmtproxy_list
}

# mgmtproxy_run COMMAND [ARGUMENT...]: runs it, through the proxy unless that is switched off. Its streams, arguments and
# exit status are its own.
mgmtproxy_run() {
  if mgmtproxy_enabled; then
    mgmtproxy_log "mgmtproxy_run: routing through proxy (${MGMTPROXY_URL:-http://127.0.0.1:5443}): $*"
    HTTPS_PROXY="${MGMTPROXY_URL:-http://127.0.0.1:5443}" NO_PROXY="$(mgmtproxy_no_proxy)" "$@"
  else
    mgmtproxy_log "mgmtproxy_run: bypassing proxy (disabled via ${MGMTPROXY_FLAG:-/run/kube/mgmtproxy-disable}): $*"
    "$@"
  fi
}

# As mgmtproxy_run, but with both variables empty where the proxy is switched off: for installers, whose parent may have them.
_mgmtproxy_installer() {
  if mgmtproxy_enabled; then
    HTTPS_PROXY="${MGMTPROXY_URL:-http://127.0.0.1:5443}" NO_PROXY="$(mgmtproxy_no_proxy)" "$@"
  else
    HTTPS_PROXY="" NO_PROXY="" "$@"
  fi
}

# mgmtproxy_wait_url URL: waits until it answers 200, asking every 5 seconds.
mgmtproxy_wait_url() {
  until [ "$(_mgmtproxy_installer curl --silent --location --max-time 30 --output /dev/null --write-out '%{http_code}' "$1")" = 200 ]; do
    sleep "${MGMTPROXY_RETRY_SECONDS:-5}"
  done
}

# mgmtproxy_install URL [ARGUMENT...]: downloads an installer script and runs it with the arguments, both through the proxy, or both
# with empty variables where it is switched off. Fails where the download does; a script that came in part is never run.
mgmtproxy_install() {
  _mgmtproxy_url="$1"
  shift
  _mgmtproxy_script="$(mktemp)" || return 1
  if mgmtproxy_enabled; then
    mgmtproxy_log "mgmtproxy_install: routing through proxy (${MGMTPROXY_URL:-http://127.0.0.1:5443}): $_mgmtproxy_url"
  else
    mgmtproxy_log "mgmtproxy_install: bypassing proxy (disabled via ${MGMTPROXY_FLAG:-/run/kube/mgmtproxy-disable}): $_mgmtproxy_url"
  fi
  mgmtproxy_wait_url "$_mgmtproxy_url"
  if _mgmtproxy_installer curl --silent --show-error --fail --location --output "$_mgmtproxy_script" "$_mgmtproxy_url"; then
    _mgmtproxy_installer sh "$_mgmtproxy_script" "$@"
    _mgmtproxy_status=$?
  else
    _mgmtproxy_status=$?
  fi
  rm -f "$_mgmtproxy_script"
  unset _mgmtproxy_url _mgmtproxy_script
  return "$_mgmtproxy_status"
}
