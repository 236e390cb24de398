import type { ProxyEnvironment } from "./proxy-environment.ts";

/** A drop-in for a service of systemd, which puts it behind the proxy. */
export function systemdDropIn({ HTTPS_PROXY, NO_PROXY }: ProxyEnvironment): string {
  // Unquoted percent signs and quotes would be systemd's; neither can occur in these lists.
  return `[Service]\nEnvironment="HTTPS_PROXY=${HTTPS_PROXY}"\nEnvironment="NO_PROXY=${NO_PROXY}"\n`;
}
