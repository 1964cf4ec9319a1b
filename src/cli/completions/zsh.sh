#compdef asdf-mount
# a function, as colons would end the specification that it stands in
_asdf_mount_options() {
    _values -s , option @MOUNT_OPTIONS@
}
_asdf_mount_points() {
    local -a points
    points=(${(f)"$(awk '@MOUNT_POINTS@' /proc/self/mounts)"})
    points+=(${${(M)points:#$PWD/*}#$PWD/})
    _wanted mounts expl mountpoint compadd -a points
}
_asdf_mount_paths() {
    if (( ${words[(I)-u]} || ${words[(I)--unmount]} || ${words[(I)--revert]} )); then
        _asdf_mount_points
    else
        _alternative 'files:ASDF file:_path_files -g "*.asdf"' 'directories:directory:_path_files -/'
    fi
}
_asdf_mount() {
    _arguments -s \
        '*-o[mount options]:option:_asdf_mount_options' \
@FLAGS@
        '*:path:_asdf_mount_paths'
}
if [ "$funcstack[1]" = _asdf-mount ]; then _asdf_mount "$@"; else compdef _asdf_mount asdf-mount; fi
