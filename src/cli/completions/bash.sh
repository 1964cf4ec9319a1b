# bash completion for asdf-mount
_asdf_mount() {
    local line=${COMP_LINE:0:COMP_POINT}
    local cur=${line##*[[:space:]]} words prev split='' reply
    read -ra words <<<"${line%"$cur"}"
    prev=${words[-1]}
    # readline may take what stands behind = for a word of its own
    [[ $COMP_WORDBREAKS == *=* && $cur == *=* ]] && split=${cur%=*}=
    COMPREPLY=()
    case $prev in
        -o)
            compopt -o nospace
            while IFS= read -r reply; do
                COMPREPLY+=("${reply#"$split"}")
            done < <(compgen -P "${cur%"${cur##*,}"}" -W '@MOUNT_OPTIONS@' -- "${cur##*,}")
            return ;;
        --completions) mapfile -t COMPREPLY < <(compgen -W 'bash zsh fish' -- "$cur"); return ;;
        --explode) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
        --implode | --pid-file | --log-file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
        --timeout) return ;;
    esac
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W '@FLAGS@' -- "$cur")
        return
    fi
    compopt -o filenames
    if [[ " ${words[*]} " =~ \ (-u|--unmount)\  ]]; then
        local IFS=$'\n'
        mapfile -t COMPREPLY < <(compgen -W "$(awk '$3 == "fuse.asdf-mount" {print $2}' /proc/self/mounts)" -- "$cur")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -f -X '!*.asdf' -- "$cur"; compgen -d -- "$cur")
}
complete -F _asdf_mount asdf-mount
