import { isIP } from "node:net";

/** What is wrong with a string of an OpenAPI format; undefined when nothing is, or the format is not one we know. */
export function formatFault(format: string, value: string): string | undefined {
  switch (format) {
    case "date-time":
      return /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/.test(value)
        ? undefined
        : JSON.stringify(value);
    case "date":
      return /^\d{4}-\d\d-\d\d$/.test(value) ? undefined : JSON.stringify(value);
    case "byte":
      return /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(value) ? undefined : "not base64";
    case "quantity":
      return /^[+-]?(\d+(\.\d*)?|\.\d+)(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?\d+)?$/.test(value)
        ? undefined
        : JSON.stringify(value);
    case "ipv4":
      return isIP(value) === 4 ? undefined : JSON.stringify(value);
    case "ipv6":
      return isIP(value) === 6 ? undefined : JSON.stringify(value);
    case "cidr":
      return isCidr(value) ? undefined : JSON.stringify(value);
    case "uuid":
      return /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i.test(value) ? undefined : JSON.stringify(value);
    case "mac":
      return /^([0-9a-f]{2}[:-]){5}[0-9a-f]{2}$/i.test(value) ? undefined : JSON.stringify(value);
    case "uri":
      return URL.canParse(value) ? undefined : JSON.stringify(value);
    default:
      return undefined;
  }
}

function isCidr(value: string): boolean {
  const slash = value.indexOf("/");
  if (slash < 0) return false;
  const family = isIP(value.slice(0, slash));
  const bits = value.slice(slash + 1);
  return family !== 0 && /^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128);
}
