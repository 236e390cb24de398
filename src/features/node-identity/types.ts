/** This machine, as it was at the start of the program. */
export interface ThisHost {
  /** The boot id of its kernel. `undefined`: it cannot be read, and boot ids are not compared. */
  readonly bootId: string | undefined;
  /** The content of /etc/machine-id; `undefined` if the host has none or it cannot be read. Only texts for operators have it. */
  readonly machineId: string | undefined;
}

/** The fields of the own Node object that tell which machine wrote it. A text is empty if the Node does not have the field. */
export interface SeenNode {
  readonly uid: string;
  readonly resourceVersion: string;
  /** `status.nodeInfo.bootID`. */
  readonly bootId: string;
  /** `status.nodeInfo.machineID`. */
  readonly machineId: string;
  /** The InternalIP addresses. */
  readonly addresses: readonly string[];
  /** `lastHeartbeatTime` of the condition Ready. Only a kubelet changes it: controllers that set the condition to Unknown leave it. */
  readonly heartbeat: string;
}

/** The reason why it is not known yet whether the Node is this machine's. */
export type WaitReason = "no-node" | "no-address" | "status-not-written";

/** The difference between the Node and this machine. */
export type Difference = "boot-id" | "addresses";

/** The machine to which the Node object belongs. */
export type Identity =
  | { readonly kind: "waiting"; readonly reason: WaitReason }
  | { readonly kind: "ours" }
  /** The Node shows another machine, not yet for long enough to be sure. */
  | { readonly kind: "suspect"; readonly other: SeenNode; readonly difference: Difference }
  /** Another machine writes this Node's status too. */
  | {
      readonly kind: "twin";
      /** The last status that was the other machine's. */
      readonly other: SeenNode;
      readonly difference: Difference;
      /** It was found at this time, in milliseconds of the observer's clock. */
      readonly sinceMs: number;
    };
