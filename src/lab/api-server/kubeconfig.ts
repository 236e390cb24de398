import { stringify } from "yaml";

/** The values of a kubeconfig. */
export interface KubeconfigInit {
  readonly server: string;
  /** PEM; undefined for plain HTTP. */
  readonly ca?: string | undefined;
  readonly token?: string | undefined;
  readonly namespace?: string | undefined;
  readonly user?: string | undefined;
}

/** Writes a kubeconfig with one context, named `isthmus-lab`. */
export function renderKubeconfig(init: KubeconfigInit): string {
  const name = "isthmus-lab";
  const user = init.user ?? "lab-admin";
  const ca = init.ca === undefined ? {} : { "certificate-authority-data": Buffer.from(init.ca).toString("base64") };
  return stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name, cluster: { server: init.server, ...ca } }],
    users: [{ name: user, user: init.token === undefined ? {} : { token: init.token } }],
    contexts: [
      {
        name,
        context: { cluster: name, user, ...(init.namespace === undefined ? {} : { namespace: init.namespace }) },
      },
    ],
    "current-context": name,
  });
}
