/** The pod that a call is for. */
export interface PodIdentity {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/** A pod as read for an ADD. */
export interface FoundPod extends PodIdentity {
  /** The Node that the Pod is bound to; `undefined` if it is bound to none yet. */
  readonly nodeName?: string | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly annotations?: Readonly<Record<string, string>> | undefined;
}
