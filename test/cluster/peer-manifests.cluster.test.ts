/**
 * The manifests of Coil, of kube-proxy by kubeadm, and of Konnectivity, as their projects have them, on a cluster of two machines: they start our programs
 * after a change of the image alone. The image is that of this suite for any name, so nothing of the text is changed but what is an operator's there:
 * certificates and addresses.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeCertificates } from "#test/certificates";
import { until } from "#test/lab";
import { API, API_PORT, AT, FAMILIES, ManifestBed, NODE_PROXIER, ofFamily } from "#test/manifest-bed";

const PORT = 8000;
const SERVICE = "10.96.10.10";
const IMAGES =
  /(image: )(ghcr\.io\/cybozu-go\/coil|registry\.k8s\.io\/kube-proxy|registry\.k8s\.io\/kas-network-proxy\/proxy-(?:server|agent)):v?[\d.]+/g;

/** One of the manifests, with our image and no other change. */
function manifest(name: string): string {
  const text = readFileSync(join(import.meta.dirname, "../data/manifests", `${name}.yaml`), "utf8");
  const changed = text.replaceAll(IMAGES, "$1isthmus:0.1.0");
  assert.notEqual(changed, text);
  assert.equal(changed.replaceAll(/image: isthmus:0\.1\.0/g, "").includes("image: "), false);
  return changed;
}

test("manifests of Coil, kube-proxy and Konnectivity: by a change of image they start our programs, which work", async (t) => {
  const bed = await ManifestBed.open(t, "peers", { outside: "static" });

  // Coil, with certificates of the operator.
  const hosts = ["ipam", "egress"].map((part) => `coilv2-${part}-webhook-service.kube-system.svc`);
  const { ca, pairs } = makeCertificates("webhooks", { webhook: hosts });
  const base64 = (text: string): string => Buffer.from(text).toString("base64");
  await bed.applyCrds();
  await bed.applyText(
    "coil.yaml",
    manifest("coil")
      .replaceAll("CA_BUNDLE", base64(ca))
      .replaceAll("TLS_CRT", base64(pairs.webhook.cert))
      .replaceAll("TLS_KEY", base64(pairs.webhook.key)),
  );
  await bed.ready("coild", "coil-ipam-controller", "coil-egress-controller", "coil-router");
  await bed.makePool();
  const [one, two] = [await bed.run("one"), await bed.run("two")];
  for (const family of FAMILIES) {
    const address = ofFamily(two.ips, family);
    execFileSync("nsenter", [`--net=/run/netns/${one.netns}`, "ping", "-c1", "-W2", address], { stdio: "pipe" });
  }

  // kube-proxy. Every cluster has its role.
  await bed.applyText("role.yaml", NODE_PROXIER);
  await bed.applyText(
    "kube-proxy.yaml",
    manifest("kube-proxy").replace("CONTROL_PLANE_ENDPOINT", `${API}:${API_PORT}`),
  );
  await bed.ready("kube-proxy");
  const endpoint = ofFamily(two.ips, 4);
  await bed.serve(two.netns, endpoint, PORT);
  await bed.makeService("web", { clusterIP: SERVICE, port: 80 }, { address: endpoint, port: PORT });
  await until("the Service answers", async () => (await bed.seen(one.netns, SERVICE, 80)) === ofFamily(one.ips, 4), {
    seen: () => bed.said(),
  });

  // Konnectivity, whose agent is a pod of the network.
  bed.ip("outside", "route", "add", "10.210.0.0/26", "via", AT.node[4]);
  bed.write("outside", "etc/kubernetes/pki/apiserver.crt", bed.pair.cert);
  bed.write("outside", "etc/kubernetes/pki/apiserver.key", bed.pair.key);
  bed.write("outside", "etc/kubernetes/konnectivity-server.conf", bed.kubeconfigOf("system:konnectivity-server"));
  await bed.runStatic("outside", manifest("konnectivity-server"));
  await bed.applyText("konnectivity-agent.yaml", manifest("konnectivity-agent"));
  await bed.ready("konnectivity-server", "konnectivity-agent");
  await bed.serve(bed.netns("node"), AT.node[4], PORT);
  const socket = bed.path("outside", "etc/kubernetes/konnectivity-server/konnectivity-server.socket");
  await bed.reachByFrontend(socket, `${AT.node[4]}:${PORT}`);
  for (const machine of ["node", "outside"] as const) assert.equal(await bed.node(machine).alive(), true);
  assert.doesNotMatch(bed.said(), /because of a bug/i);
});
