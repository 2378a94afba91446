{{/* Root, as rings belong to users of all jobs; not privileged. */}}
{{- define "oncall.collectorSecurity" -}}
runAsUser: 0
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
seccompProfile: {type: RuntimeDefault}
capabilities:
  drop: [ALL]
  add: {{- toYaml .capabilities | nindent 4 }}
{{- end -}}
