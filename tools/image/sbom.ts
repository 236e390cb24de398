/** The bill of materials of the image, as a document of SPDX 2.3 (spdx.github.io/spdx-spec/v2.3). Pure. */
import { createHash } from "node:crypto";

/** Something that is in the image. */
export interface Part {
  readonly name: string;
  readonly version: string;
  /** A package URL, https://github.com/package-url/purl-spec. */
  readonly purl: string;
  /** The checksum of the file from which it was taken, in hexadecimal digits. */
  readonly checksum?: { readonly algorithm: "SHA256" | "SHA512"; readonly value: string };
  /** A license expression of SPDX, where the part names one. */
  readonly license?: string;
}

/** The subject of the document. */
export interface Subject {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  /** Seconds since 1970. */
  readonly epoch: number;
}

/** The document as text, with one package for each part, in the order of their package URLs. */
export function spdxDocument(parts: readonly Part[], subject: Subject): string {
  const sorted = [...parts].sort((a, b) => (a.purl < b.purl ? -1 : 1));
  const root = "SPDXRef-isthmus";
  const packages = [
    packageOf({ ...subject, purl: `pkg:generic/${subject.name}@${subject.version}` }, root),
    ...sorted.map((part) => packageOf(part, idOf(part))),
  ];
  const contents = createHash("sha256").update(JSON.stringify(packages)).digest("hex");
  const document = {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: `${subject.name}-${subject.version}`,
    // Another content must have another namespace.
    documentNamespace: `urn:isthmus:sbom:${subject.version}:${contents}`,
    creationInfo: {
      created: new Date(subject.epoch * 1000).toISOString().replace(".000Z", "Z"),
      creators: ["Tool: isthmus-image"],
    },
    documentDescribes: [root],
    packages,
    relationships: [
      { spdxElementId: "SPDXRef-DOCUMENT", relationshipType: "DESCRIBES", relatedSpdxElement: root },
      ...sorted.map((part) => ({
        spdxElementId: root,
        relationshipType: "CONTAINS",
        relatedSpdxElement: idOf(part),
      })),
    ],
  };
  return `${JSON.stringify(document, null, 1)}\n`;
}

/** Ids may have letters, digits, dots and hyphens; the digest keeps two purls apart that differ in other characters alone. */
function idOf({ purl }: Part): string {
  const short = createHash("sha256").update(purl).digest("hex").slice(0, 8);
  return `SPDXRef-${purl.replace(/^pkg:/, "").replace(/[^A-Za-z0-9.-]+/g, "-")}-${short}`;
}

function packageOf({ name, version, purl, checksum, license }: Part, id: string): object {
  return {
    SPDXID: id,
    name,
    versionInfo: version,
    downloadLocation: "NOASSERTION",
    filesAnalyzed: false,
    licenseConcluded: "NOASSERTION",
    licenseDeclared: license ?? "NOASSERTION",
    copyrightText: "NOASSERTION",
    ...(checksum === undefined
      ? {}
      : { checksums: [{ algorithm: checksum.algorithm, checksumValue: checksum.value }] }),
    externalRefs: [{ referenceCategory: "PACKAGE-MANAGER", referenceType: "purl", referenceLocator: purl }],
  };
}
