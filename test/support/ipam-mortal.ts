/**
 * A process that can be killed between any two of its calls, with the kernel and the API server that outlive it.
 *
 * Owns: the count of calls until the death, faults of single calls to the API. Does not know: what the process does.
 *
 * ```ts
 * const life = new Life();
 * life.dieAfter(7);
 * const network = new PodNetwork({ kernel: mortalKernel(kernel, life), log }, options);
 * await assert.rejects(life.unlessKilled(network.setUp(request)), Killed);
 * ```
 */
import type { Kernel, NetNs, NetStack } from "#kernel/net";
import { type KubeApi, KubeError } from "#kube/client";

/** The process was killed. It is not an expected error: no code of the process may run after it. */
export class Killed extends Error {
  override readonly name = "Killed";
}

/** The life of one process. */
export class Life {
  readonly #death = Promise.withResolvers<never>();
  #callsLeft = Number.POSITIVE_INFINITY;
  #isOver = false;
  readonly #open = new Set<Disposable>();

  constructor() {
    this.#death.promise.catch(() => undefined);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** The process is killed at the call after this number of calls; 0: at the next call. */
  dieAfter(calls: number): void {
    this.#callsLeft = calls;
  }

  /** Cancels an earlier {@link Life.dieAfter}. */
  goOn(): void {
    this.#callsLeft = Number.POSITIVE_INFINITY;
  }

  /** The kernel closes the open descriptors of the process. */
  kill(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const one of this.#open) one[Symbol.dispose]();
    this.#open.clear();
    this.#death.reject(new Killed("killed"));
  }

  /** Notes a descriptor of the process. */
  opened<T extends Disposable>(one: T): T {
    this.#open.add(one);
    return one;
  }

  /** One call to the kernel or the API. Throws {@link Killed}. */
  step(): void {
    if (!this.#isOver && this.#callsLeft > 0) {
      this.#callsLeft -= 1;
      return;
    }
    this.kill();
    throw new Killed("killed");
  }

  /** The answer of the process, for its caller. Rejects with {@link Killed} when the process is killed before it has answered. */
  unlessKilled<T>(answer: Promise<T>): Promise<T> {
    return Promise.race([answer, this.#death.promise]);
  }
}

/** Methods of ports that return promises. */
const ASYNC: ReadonlySet<PropertyKey> = new Set(["deleteAsync", "deleteMany"]);

/** The kernel as the process sees it. */
export function mortalKernel(kernel: Kernel, life: Life): Kernel {
  return mortal(kernel, life, (method, result) => {
    if (method === "openNetNs" || method === "createNetNs" || method === "createAnonymousNetNs") {
      return life.opened(result as NetNs);
    }
    if (method !== "openStack") return result;
    const stack = life.opened(result as NetStack);
    const ports = Object.entries(stack).map(([name, port]) => [name, mortal(port as object, life)]);
    return { ...Object.fromEntries(ports), [Symbol.dispose]: () => stack[Symbol.dispose]() };
  });
}

function mortal<T extends object>(
  target: T,
  life: Life,
  wrap: (method: PropertyKey, result: unknown) => unknown = (_method, result) => result,
): T {
  return new Proxy(target, {
    get: (_target, name) => {
      const value = Reflect.get(target, name) as unknown;
      if (typeof value !== "function") return value;
      return (...args: unknown[]) => {
        try {
          life.step();
        } catch (error) {
          if (ASYNC.has(name)) return Promise.reject(error);
          throw error;
        }
        return wrap(name, Reflect.apply(value, target, args));
      };
    },
  });
}

/** The way in which one call to the API fails: `refused` before it does anything, `lost` after it has succeeded. */
export type ApiFault = "refused" | "lost";

/** The connection of one process to the API server. */
export class ApiPath {
  /** If true, no call arrives. */
  isCut = false;
  #fault: { readonly how: ApiFault; callsLeft: number } | undefined;

  /** The call after this number of calls fails. */
  failAfter(calls: number, how: ApiFault): void {
    this.#fault = { how, callsLeft: calls };
  }

  /** Cancels a fault that has not happened yet. */
  heal(): void {
    this.#fault = undefined;
  }

  /** The fault of the next call. */
  take(): ApiFault | undefined {
    if (this.isCut) return "refused";
    const fault = this.#fault;
    if (fault === undefined) return undefined;
    fault.callsLeft -= 1;
    if (fault.callsLeft >= 0) return undefined;
    this.#fault = undefined;
    return fault.how;
  }
}

/** The API as the process sees it. `onWritten` is called after each write that succeeded, also if its answer is lost. */
export function mortalApi(
  api: KubeApi,
  { path, life, onWritten }: { readonly path: ApiPath; readonly life: Life; readonly onWritten: OnWritten },
): KubeApi {
  return new Proxy(api, {
    get: (_target, name: keyof KubeApi) => {
      const method = api[name] as (...args: unknown[]) => unknown;
      if (name === "watch" || name === "listPages") {
        return async function* (...args: unknown[]) {
          life.step();
          if (path.take() !== undefined) throw unreachable();
          for await (const one of Reflect.apply(method, api, args) as AsyncIterable<unknown>) {
            life.step();
            yield one;
          }
        };
      }
      return async (...args: unknown[]) => {
        life.step();
        const fault = path.take();
        if (fault === "refused") throw unreachable();
        const answer: unknown = await Reflect.apply(method, api, args);
        if (WRITES.has(name)) await onWritten(name, args, answer);
        life.step();
        if (fault === "lost") throw unreachable();
        return answer;
      };
    },
  });
}

export type OnWritten = (method: keyof KubeApi, args: readonly unknown[], answer: unknown) => Promise<void>;
const WRITES: ReadonlySet<keyof KubeApi> = new Set(["create", "replace", "replaceStatus", "patch", "delete"]);

function unreachable(): KubeError {
  return new KubeError("unreachable", "the connection was cut");
}
