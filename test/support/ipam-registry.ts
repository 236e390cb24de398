/** The Nodes of the cluster and their Pod objects, for the model of addresses: the model is the only one that writes them. */
import { isKubeError, resources } from "#kube/client";
import type { ModelPlace } from "#test/ipam-place";

/** Nodes and Pod objects of one scene. `onChange` is told which Node was written. */
export class ModelRegistry {
  readonly #place: ModelPlace;
  readonly #nodes: Set<string>;
  readonly #pods = new Map<string, string>();
  readonly #onChange: (node: string) => void;

  constructor(place: ModelPlace, nodes: readonly string[], onChange: (node: string) => void) {
    this.#place = place;
    this.#nodes = new Set(nodes);
    this.#onChange = onChange;
  }

  get nodes(): ReadonlySet<string> {
    return this.#nodes;
  }

  /** The number of Pod objects. */
  get size(): number {
    return this.#pods.size;
  }

  hasPodsOn(node: string): boolean {
    return [...this.#pods.values()].includes(node);
  }

  async deleteNode(node: string): Promise<void> {
    const { client, options } = this.#place;
    await client.delete(resources.nodes, { name: node }, options).catch(absent);
    this.#nodes.delete(node);
    this.#onChange(node);
  }

  async register(node: string): Promise<void> {
    const { client, options } = this.#place;
    if (!this.#nodes.has(node)) await client.create(resources.nodes, { metadata: { name: node } }, options);
    this.#nodes.add(node);
    this.#onChange(node);
  }

  async createPod(name: string, node: string): Promise<void> {
    const { client, options } = this.#place;
    const spec = { nodeName: node, containers: [{ name: "c", image: "none" }] };
    await client.create(resources.pods, { metadata: { namespace: "default", name }, spec }, options);
    this.#pods.set(name, node);
  }

  async removePod(name: string): Promise<void> {
    if (!this.#pods.delete(name)) return;
    const { client, options } = this.#place;
    await client.delete(resources.pods, { namespace: "default", name }, { ...options, gracePeriodSeconds: 0 });
  }

  /** Deletes the Pod objects of nodes that are gone, as the cluster's pod garbage collector does, whatever runs there. */
  async collectPods(): Promise<void> {
    for (const [pod, node] of this.#pods) if (!this.#nodes.has(node)) await this.removePod(pod);
  }

  async removeAllPods(): Promise<void> {
    for (const pod of this.#pods.keys()) await this.removePod(pod);
  }
}

/** For a deletion of what may be gone. */
export function absent(error: unknown): undefined {
  if (!isKubeError(error, "not-found")) throw error;
}
