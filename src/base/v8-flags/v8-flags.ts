import { setFlagsFromString } from "node:v8";

/** Pure: false with `ISTHMUS_V8_FLAGS=off` in the environment. The launcher then gives Node no flag either. */
export function setsV8Flags(env: Readonly<Record<string, string | undefined>> = process.env): boolean {
  return env["ISTHMUS_V8_FLAGS"] !== "off";
}

/** Sets a flag of V8, such as `--optimize-for-size`, unless the switch is off. Unknown flags have no effect. */
export function setV8Flag(flag: string): void {
  if (setsV8Flags()) setFlagsFromString(flag);
}
