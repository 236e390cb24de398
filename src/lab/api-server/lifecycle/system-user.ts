import type { UserInfo } from "../auth/auth.ts";

/** The user that one of the server's own controllers acts as. */
export function systemUser(controller: string): UserInfo {
  return { name: `system:serviceaccount:kube-system:${controller}`, groups: ["system:masters"] };
}
