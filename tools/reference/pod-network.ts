import { endpoints, files, healthParts, objects, rights, type Section, section } from "#base/estate";

/** Notes by program. A number that a flag sets is the flag's default. */
export const podNetwork: Readonly<Record<string, readonly Section[]>> = {
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
    healthParts(
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
  "coil-egress-controller": [
    objects(
      ["Lease `kube-system/coil-egress-leader`", "the replica that leads; `coil-controller` has both Leases"],
      [
        "Deployments, Services, PodDisruptionBudgets owned by an Egress: fields of the manager `coil-egress-controller`",
        "routers; fields of other managers stay",
      ],
      [
        "subjects of the ClusterRoleBindings `coil-egress` and `psp-coil-egress`",
        "the routers' account of each namespace with an Egress",
      ],
    ),
  ],
  "coil-installer": [],
};
