/** The number of hosts with an overdue dial, without any answer meanwhile, from which an agent counts as silent. */
const SILENT_HOSTS = 3;

/**
 * The judgement whether an agent answers dials (docs/spec/tunnel.md#7.5). An agent is silent once dials to three different hosts are overdue and none was answered since
 * the first of them was sent. Holds three hosts at most, and none while answers come.
 */
export class DialHealth {
  #answers = 0;
  #overdueHosts: readonly string[] | undefined;

  /** A dial is sent. The result is to be passed to {@link overdue} if its answer does not come in time. */
  get mark(): number {
    return this.#answers;
  }

  get isSilent(): boolean {
    return this.#overdueHosts?.length === SILENT_HOSTS;
  }

  get hasAnswered(): boolean {
    return this.#answers > 0;
  }

  /** A dial was answered, with success or with an error. */
  answered(): void {
    this.#answers += 1;
    this.#overdueHosts = undefined;
  }

  /** A dial to the host had no answer in time, and was not given up before. */
  overdue(host: string, mark: number): void {
    if (mark !== this.#answers) return;
    const hosts = this.#overdueHosts ?? [];
    if (hosts.length === SILENT_HOSTS || hosts.includes(host)) return;
    this.#overdueHosts = [...hosts, host];
  }
}
