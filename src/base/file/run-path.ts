/**
 * A path of the host without the old name of /run. Container runtimes (`/var/run/netns/...` of containerd and CRI-O) and configurations say
 * /var/run, which on their host is a link to /run (FHS 3.0, 5.13). In a container of ours /run is the host's, and /var/run a folder of the image,
 * below which the kubelet mounts tokens. Pure.
 */
export function runPath(path: string): string {
  return path.replace(/^\/+var\/+run\/+/, "/run/");
}
