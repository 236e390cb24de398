import { ExpectedError } from "#base/errors";

/** Error codes: CNI specification section "Error", and the codes that Coil adds. */
export const CniCode = {
  incompatibleVersion: 1,
  unsupportedField: 2,
  unknownContainer: 3,
  invalidEnvironment: 4,
  ioFailure: 5,
  decodingFailure: 6,
  invalidConfig: 7,
  /** Not in the specification: a code of the common library, for a namespace that is the plugin's own. */
  invalidNetns: 8,
  tryAgainLater: 11,
  notAvailable: 50,
  limitedConnectivity: 51,
  /** Codes from 100 on are a plugin's own; these are of vpc-neutron and vpc-alcor (docs/spec/vpc-nics.md#7, #8). */
  nicFailed: 101,
  noIntegrationBridge: 102,
  differs: 103,
  noVpc: 104,
  nameCollision: 105,
  internal: 999,
} as const;
export type CniCode = (typeof CniCode)[keyof typeof CniCode];

/** A failure that is reported to the container runtime. */
export class CniError extends ExpectedError<"cni"> {
  override readonly name = "CniError";
  /** The error code for the runtime; a number from a daemon is passed unchanged. */
  readonly cniCode: number;
  readonly details: string;

  constructor(cniCode: number, message: string, options: { readonly details?: string; readonly cause?: unknown } = {}) {
    super("cni", message, "cause" in options ? { cause: options.cause } : {});
    this.cniCode = cniCode;
    this.details = options.details ?? "";
  }
}

/** The error object for standard output. */
export function cniErrorJson(error: CniError, cniVersion: string): string {
  const details = error.details === "" ? {} : { details: error.details };
  return JSON.stringify({ cniVersion, code: error.cniCode, msg: error.message, ...details });
}
