import { endpoints, files, kernel, objects, rights, type Section, section } from "./section.ts";

/** Notes by program. A number that a flag sets is the flag's default. */
export const podNetwork: Readonly<Record<string, readonly Section[]>> = {
  coild: [
    endpoints(":9384", ":9385"),
    section("Services on the socket", "gRPC method", "what")(
      ["`/pkg.cnirpc.CNI/Add`, `Del`, `Check`, `Status`, `GC`", "the methods that the CNI executable calls"],
      ["`/isthmus.dev.Node/Inspect`", "memory and kernel of this node as JSON, for `isthmus audit`"],
      [
        "`/isthmus.dev.Node/InspectEgress`",
        "what pods of this node have of NAT clients and routers as JSON, for `isthmus audit`",
      ],
      ["`/grpc.reflection.v1.ServerReflection`, `v1alpha`", "describes `pkg.cnirpc.CNI`, for tools such as grpcurl"],
    ),
    rights(
      [
        "pods",
        "get; list, to find the pods that are cut off, and clients that a router of this node refuses; watch of this node's pods, for NAT clients",
      ],
      [
        "events",
        "create, patch: events on pods that are cut off or connected again, on pods that lack a part of an Egress or an IPv6 address, on Egresses and their clients where a router of this node refuses flows, and on the Node while another machine has its name, or its CNI files are missing",
      ],
      ["`egresses`, services", "get, list, watch; not with `--enable-egress=false`"],
      ["namespaces", "get, list, watch"],
      ["nodes", "get; list and watch of this Node, to notice its deletion at once, and another machine with its name"],
      [
        "`addressblocks`",
        "get, list, update, delete; watch of this node's blocks, to notice changes by other programs at once",
      ],
      ["`blockrequests`", "get, list, watch, create, delete"],
      [
        "with `--enable-ipam=false`",
        "pods, services, `egresses`: get, list, watch; events: create, patch; nothing else",
      ],
    ),
    section("Answers to STATUS", "code", "when")(
      ["0", "ADD can be served"],
      ["50", "coild does not run, or does not know its blocks yet; it lacks the privileges to make links"],
      ["51", "this Node was deleted, or attachments are cut off"],
    ),
    section("Parts of `/readyz?verbose`", "part", "degraded when")(
      [
        "`socket`",
        "it cannot be served: its file was removed and cannot be made again, or another process listens there; tried again twice a second; 503",
      ],
      ["`lock`", "`coild.lock` was removed and cannot be made and locked again, as without its folder; 503"],
      [
        "`ipam`",
        "blocks cannot be compared or released; this Node was deleted; addresses in use are in no block; addresses of a link cannot be read",
      ],
      ["`set-up`", "the last probe, which makes a pod's link in throwaway namespaces, was refused; 503"],
      [
        "`attachments`",
        "attachments are cut off: their blocks were deleted or belong to another node; 503 until their pods are deleted",
      ],
      [
        "`node`",
        "another machine has the name of this node, the Node has no InternalIP yet and no ExternalIP of this host, or its status is not this machine's yet: pods cannot start; 503",
      ],
      [
        "`hand-over`",
        "the hand-over socket cannot be served: calls of `coil` take longer, and it is tried again twice a second",
      ],
      [
        "`cni-files`",
        "the CNI configuration or an executable is missing, because it cannot be put back, or was removed more than three times within ten minutes; 503. It is absent where `coild` does not keep these files",
      ],
      [
        "`forward`",
        "the rules by which packets of pods pass FORWARD of iptables cannot be written, as those of iptables-legacy without `CAP_NET_RAW`; tried again every 10 s",
      ],
      ["`events`", "pods that are cut off cannot be found in the API"],
      ["`kernel`", "a route, rule or address of the pods' network cannot be restored"],
      ["`routes`", "blocks cannot be exported"],
      ["`watch`", "this node's objects cannot be watched; changes are then found at the next comparison"],
      [
        "`tunnel-driver`",
        "this kernel lacks what `--tunnel-driver` needs: pods that name an Egress do not start; it is tried again every minute",
      ],
      [
        "`egress-routers`",
        "a router of an Egress answers no probes of this node: its clients here use another one ([7.8](../spec/pod-network.md#7.8))",
      ],
      [
        "`refused-flows`",
        "it cannot be read whether a router on this node refuses flows, or a refused client cannot be looked up: events `EgressPortsExhausted` are missing ([9.3](../spec/pod-network.md#9.3))",
      ],
      [
        "`watch-pods`, `watch-egresses`, `watch-services`, `watch-namespaces`",
        "changes of Egresses do not reach running pods",
      ],
    ),
    files(
      ["`/run/coild.sock`", "the socket (`--socket`)"],
      ["`/run/coild.sock.call1`", "the hand-over socket: the socket's path followed by `.call1`, for calls of `coil`"],
      [
        "`coild.lock` beside the socket",
        "locked while a coild runs; a second coild waits for it. If it is removed, it is made again within a second; a coild that finds the new one locked by another process ends",
      ],
    ),
    kernel(
      ["link alias `COIL:<pool>:<containerID>:<ifname>`", "a finished attachment"],
      ["link alias `COIL::<pod UID>:<ifname>`", "with `--enable-ipam=false`: another plugin's link of a pod"],
      ["link alias `COIL-PENDING:<containerID>:<ifname>`", "an unfinished ADD; removed at the next start"],
      [
        "link groups 0x49000000 to 0x49ffffff",
        "links that are being deleted together; reserved: do not use these groups for other links",
      ],
      [
        "link groups 0x4b000000 to 0x4bffffff",
        "attachments by the name of their CNI network (24 bits of its SHA-1), so that GC of one network does not affect the others",
      ],
      [
        "link groups 0x4a000000 to 0x4affffff",
        "the same while they are cut off: down until their block belongs to this node again",
      ],
      ["table 116, protocol 30", "routes to this node's pods"],
      ["rule priority 2000, IPv4 and IPv6", "directs packets to table 116"],
      ["table 119, protocol 30", "this node's blocks, `dev lo`, for a routing daemon to export"],
      ["`net.ipv4.ip_forward`, `net.ipv6.conf.all.forwarding`", "set to 1"],
      [
        "in pods that name an Egress: tables 117 and 118, rules of priority 1800 to 2100",
        "ways to Egresses; objects of others within these are removed",
      ],
      [
        "there: links `nat_*`, `fou4_*`, `fou6_*`, `coil_ipip4`, `coil_ipip6`, the FoU port, `rp_filter` of IPv4",
        "tunnels to Egresses; the settings stay when the last Egress goes",
      ],
    ),
  ],
  "coil-ipam-controller": [
    endpoints(":9386", ":9387"),
    objects(
      ["Lease `kube-system/coil-ipam-leader`", "the replica that leads"],
      ["`AddressPool`, `AddressBlock`, `BlockRequest` of `coil.cybozu.com/v2`", "watched and written"],
      ["Node", "watched: blocks of a deleted Node are collected after `--node-gone-grace`"],
      ["Pod", "listed by the names of deleted nodes, before their blocks are collected"],
      [
        "Secret `kube-system/coilv2-ipam-webhook-server-cert`",
        "with `--enable-cert-rotation`: `tls.crt`, `tls.key`, `ca.crt`, made and renewed; it must exist",
      ],
      [
        "`coilv2-mutating-ipam-webhook-configuration`, `coilv2-validating-ipam-webhook-configuration`",
        "with `--enable-cert-rotation`: `caBundle` of each webhook is kept up to date",
      ],
    ),
    rights(
      ["nodes", "get, list, watch"],
      ["pods", "list"],
      ["`addresspools`", "get, list, watch, update"],
      ["`addressblocks`", "get, list, watch, create, update, delete"],
      ["`blockrequests`", "get, list, watch"],
      ["`blockrequests/status`", "update"],
      ["`addresspools/finalizers`", "update; the admission plugin OwnerReferencesPermissionEnforcement asks for it"],
      ["leases in `kube-system`", "create, and get and update of that Lease alone"],
      ["that Secret in `kube-system`", "get, list, watch, update; with `--enable-cert-rotation`"],
      ["these webhook configurations", "get, list, watch, update; with `--enable-cert-rotation`"],
    ),
    section(
      "Webhooks",
      "path",
      "what",
    )(
      ["`/mutate-coil-cybozu-com-v2-addresspool`", "adds the finalizer to a new AddressPool"],
      [
        "`/validate-coil-cybozu-com-v2-addresspool`",
        "refuses AddressPools, and changes of them, with each fault's field",
      ],
    ),
    files([
      "`tls.crt`, `tls.key` in `--cert-dir`",
      "read at a handshake, again when they change; if a pair is broken, the last good pair stays in use",
    ]),
    section("Parts of `/readyz?verbose`", "part", "degraded when")(
      [
        "`webhook`",
        "a TLS handshake with its own webhooks fails (no certificate yet), or the certificate has expired; 503. Absent with `--webhook-addr=none`",
      ],
      ["`watch-webhook-addresspools`", "pools cannot be watched; not ready until they were read"],
      [
        "`watch-secrets`, `watch-mutatingwebhookconfigurations`, `watch-validatingwebhookconfigurations`",
        "they cannot be watched; only with `--enable-cert-rotation`",
      ],
      ["`leader-election`", "the Lease cannot be read or written; a replica that waits is ready, and names the leader"],
      [
        "`watch-addresspools`, `watch-addressblocks`, `watch-blockrequests`, `watch-nodes`",
        "they cannot be watched; only of the leader, which is ready once each was read",
      ],
    ),
  ],
  "coil-router": [
    endpoints(":9388", ":9389"),
    rights(["nodes", "list, watch"], ["`addressblocks`", "list, watch"]),
    section(
      "Parts of `/readyz?verbose`",
      "part",
      "degraded when",
    )(
      ["`watch-addressblocks`, `watch-nodes`", "they cannot be watched; not ready until each was read"],
      ["`routes`", "routes cannot be written; 503"],
    ),
    kernel(["main table, protocol 31", "routes to the other nodes' blocks, via their InternalIP addresses"]),
  ],
  "coil-installer": [],
};
