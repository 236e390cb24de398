import { ConfigError, durationFlag, integerFlag, parsedFlag, stringFlag, switchFlag } from "#base/config";

/** A label's value, since claims have it as a label, and short, since each port's description has it. */
function parseClusterId(text: string): string {
  if (/^[A-Za-z0-9]([-A-Za-z0-9_.]{0,34}[A-Za-z0-9])?$/.test(text)) return text;
  throw new ConfigError("invalid-value", [`"${text}" is not an id of at most 36 letters, digits, ".", "-" and "_"`]);
}

/** The flags of the controller of NICs. */
export const nicFlags = {
  clusterId: parsedFlag(
    "cluster-id",
    parseClusterId,
    "id of this cluster in its ports; default: that of the NicClaims that are there, else the uid of the namespace kube-system. Two clusters with one id would delete each other's ports that are not in use",
    "ID",
  ),
  credentials: stringFlag(
    "credentials",
    "/etc/isthmus/clouds.yaml",
    "credentials in the form of OpenStack's clouds.yaml with one cloud, read again when they change; or a folder with PROVIDER.yaml for each provider of the NicPolicy",
    "PATH",
  ),
  gatherTime: durationFlag("gather-time", "20ms", "how long a port waits for others, to be made by one request"),
  maxBulk: integerFlag("max-bulk", 50, "ports that are made by one request at most", { min: 1, max: 50 }),
  gcInterval: durationFlag("gc-interval", "10m", "how often ports without a claim are looked for"),
  gcMinAge: durationFlag("gc-min-age", "15m", "a port without a claim is left alone until it has this age"),
  gcDryRun: switchFlag("gc-dry-run", false, "only log the ports that would be deleted"),
  controllerUser: stringFlag(
    "controller-user",
    "system:serviceaccount:kube-system:nic-controller",
    "name by which the API server knows this program; no other user writes the annotations of a pod's NICs",
    "NAME",
  ),
};
